#include "lab/load_prompts.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace nmc::lab {
namespace {

// Streams of draws, apart from one another. Those of tokens have a number added to them.
constexpr std::uint64_t kPromptLengths = 0x70726f6d, kOutputLengths = 0x6f757470, kGroups = 0x67726f75;
constexpr std::uint64_t kPrefixes = 1ull << 32, kQuestions = 2ull << 32, kBlocks = 3ull << 32;

}  // namespace

const char* workload_name(Workload workload) {
  switch (workload) {
    case Workload::kSharedPrefix: return "shared-prefix";
    case Workload::kLongDocument: return "long-document";
    case Workload::kDistinct: return "distinct";
    case Workload::kNamespaces: return "namespaces";
    case Workload::kTrace: return "trace";
  }
  return "unknown";
}

LoadPrompts::LoadPrompts(PromptOptions options) : options_(std::move(options)) {
  NMC_REQUIRE(options_.groups > 0 && options_.ids.low <= options_.ids.high, "groups={} ids={}-{}", options_.groups,
              options_.ids.low, options_.ids.high);
  NMC_REQUIRE((options_.workload == Workload::kTrace) == (options_.trace != nullptr), "a trace is a workload's");
}

std::uint32_t LoadPrompts::token(std::uint64_t stream, std::uint64_t index) const {
  const std::uint64_t count = options_.ids.high - std::uint64_t{options_.ids.low} + 1;
  const auto bits = static_cast<unsigned __int128>(keyed_random(options_.seed, stream, index));
  return options_.ids.low + static_cast<std::uint32_t>((bits * count) >> 64);
}

LoadPrompt LoadPrompts::prompt(std::size_t index) const {
  if (options_.trace != nullptr) return from_trace(index);
  LoadPrompt prompt;
  prompt.output_tokens = options_.output_tokens.draw(options_.seed, kOutputLengths, index);
  std::uint64_t group = keyed_random(options_.seed, kGroups, index) % options_.groups;
  std::uint64_t question = index;
  if (options_.workload == Workload::kNamespaces) {
    // Neighbours ask the same, each in its namespace.
    prompt.salt = fmt::format("namespace-{}", index % options_.groups);
    group = 0;
    question = index / options_.groups;
  }
  const std::size_t length = options_.prompt_tokens.draw(options_.seed, kPromptLengths, question);
  const double shared = options_.workload == Workload::kDistinct ? 0 : options_.shared_part;
  // A whole prompt in common would leave no question.
  prompt.shared_tokens = std::min(length - 1, static_cast<std::size_t>(shared * static_cast<double>(length)));
  prompt.tokens.reserve(length);
  for (std::size_t i = 0; i < prompt.shared_tokens; ++i) prompt.tokens.push_back(token(kPrefixes + group, i));
  for (std::size_t i = prompt.shared_tokens; i < length; ++i) prompt.tokens.push_back(token(kQuestions + question, i));
  return prompt;
}

LoadPrompt LoadPrompts::from_trace(std::size_t index) const {
  const LoadTrace& trace = *options_.trace;
  const TracedRequest& request = trace.requests[index % trace.requests.size()];
  LoadPrompt prompt{.output_tokens = request.output_tokens};
  prompt.tokens.reserve(request.input_tokens);
  for (std::size_t i = 0; i < request.input_tokens; ++i) {
    const std::uint64_t block = request.block_hashes[i / trace.block_tokens];
    prompt.tokens.push_back(token(kBlocks ^ mix64(block), i % trace.block_tokens));
  }
  return prompt;
}

std::string words_of(const std::vector<std::uint32_t>& tokens) {
  constexpr std::string_view kConsonants = "bdfghklmnprstvwz", kVowels = "aeiou";
  std::string text;
  for (const std::uint32_t token : tokens) {
    // A syllable for every 80 ids; at most six of them.
    std::uint32_t rest = token;
    do {
      text += kConsonants[rest % kConsonants.size()];
      rest /= static_cast<std::uint32_t>(kConsonants.size());
      text += kVowels[rest % kVowels.size()];
      rest /= static_cast<std::uint32_t>(kVowels.size());
    } while (rest > 0);
    text += ' ';
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace nmc::lab
