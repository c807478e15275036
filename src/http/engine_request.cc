#include "http/engine_request.h"

#include <algorithm>

#include "base/rng.h"

namespace nmc::http {
namespace {

using engine::TokenId;

ApiResult<std::vector<TokenId>> prompt_ids(const Prompt& prompt, bool add_special_tokens, const model::Model& model) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return text_ids(*text, add_special_tokens, model);
  }
  const auto& ids = std::get<std::vector<TokenId>>(prompt);
  for (const TokenId id : ids) {
    if (id >= model.config.vocab) {
      return bad_field("prompt", unknown_token(id, model));
    }
  }
  return ids;
}

// The field that an error of a chat template begins with ("`tools`: ..."); what names none is about the messages.
std::string_view field_of(std::string_view message) {
  for (const std::string_view field : {"tools", "documents", "chat_template_kwargs", "continue_final_message"}) {
    if (message.starts_with('`') && message.substr(1).starts_with(field)) return field;
  }
  return "messages";
}

// The seed as the client gave it for the first answer to each prompt, so that it doesn't depend on how it was sent.
std::uint64_t seed_of(const CompletionRequest& request, std::uint64_t random_seed, std::size_t prompt,
                      std::size_t answer) {
  const std::size_t n = request.sampling.n;
  if (!request.sampling.seed) return keyed_random(random_seed, 0, prompt * n + answer);
  return answer == 0 ? *request.sampling.seed : keyed_random(*request.sampling.seed, 1, answer);
}

// The last tokens, as many as asked for. To what fits: so that the answer that is asked for has room.
void truncate(std::vector<TokenId>& ids, const CompletionRequest& request, std::size_t context) {
  if (!request.truncate_prompt_tokens) return;
  auto kept = static_cast<std::size_t>(*request.truncate_prompt_tokens);
  if (*request.truncate_prompt_tokens == kToWhatFits) {
    const std::size_t asked = request.max_tokens.value_or(request.endpoint == Endpoint::kChat ? 1 : kDefaultMaxTokens);
    kept = context - std::min(asked, context - 1);
  }
  if (ids.size() > kept) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(kept));
}

// Of each word as it is at the start of a text and, where that is as long and begins otherwise, as it is after a space:
// vLLM's rule, which leaves a word alone that is spelled in other pieces.
std::vector<std::vector<TokenId>> bad_sequences_of(const std::vector<std::string>& words,
                                                   const model::Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    const std::size_t spaces = word.find_first_not_of(' ');
    const std::string_view bare = std::string_view(word).substr(spaces == word.npos ? 0 : spaces);
    std::vector<TokenId> plain = tokenizer.encode(bare);
    std::vector<TokenId> spaced = tokenizer.encode(fmt::format(" {}", bare));
    if (plain.empty()) continue;
    if (spaced.size() == plain.size() && spaced.front() != plain.front()) sequences.push_back(std::move(spaced));
    sequences.push_back(std::move(plain));
  }
  return sequences;
}

// As many of a prompt's as anything of its answer shows.
std::optional<std::uint32_t> prompt_logprobs_of(const CompletionRequest& request) {
  const std::optional<std::uint32_t> echoed = request.echo ? request.sampling.logprobs : std::nullopt;
  return std::max(echoed, request.sampling.prompt_logprobs);  // nothing is less than any number
}

ApiResult<void> check_ids(const SamplingFields& sampling, const model::Model& model) {
  for (const engine::LogitBias& bias : sampling.params.logit_bias) {
    if (bias.id >= model.config.vocab) return bad_field("logit_bias", unknown_token(bias.id, model));
  }
  for (const TokenId id : sampling.params.allowed_ids) {
    if (id >= model.config.vocab) return bad_field("allowed_token_ids", unknown_token(id, model));
  }
  for (const TokenId id : sampling.stop_ids) {
    if (id >= model.config.vocab) return bad_field("stop_token_ids", unknown_token(id, model));
  }
  return {};
}

}  // namespace

std::string unknown_token(TokenId id, const model::Model& model) {
  return fmt::format("token id {} is not in the vocabulary of {}", id, model.config.vocab);
}

std::vector<TokenId> text_ids(std::string_view text, bool add_special_tokens, const model::Model& model) {
  return model.tokenizer->encode(text,
                                 {.parse_special = true, .add_bos = add_special_tokens && model.tokenizer->adds_bos()});
}

ApiResult<std::vector<TokenId>> chat_ids(const model::Chat& chat, bool add_special_tokens, const model::Model& model) {
  auto ids = model.chat_template->render(*model.tokenizer, chat);
  if (!ids) return ApiFailure(to_api_error(ids.error(), field_of(ids.error().message)));
  if (add_special_tokens && model.tokenizer->adds_bos()) ids->insert(ids->begin(), *model.tokenizer->bos_id());
  return std::move(*ids);
}

ApiResult<std::vector<engine::GenerateRequest>> make_engine_requests(const CompletionRequest& request,
                                                                     const std::string& id, const model::Model& model,
                                                                     const EngineLimits& limits,
                                                                     std::uint64_t random_seed) {
  const bool chat = request.endpoint == Endpoint::kChat;
  const char* field = chat ? "messages" : "prompt";
  const SamplingFields& sampling = request.sampling;
  if (auto known = check_ids(sampling, model); !known) return ApiFailure(std::move(known).error());
  const std::vector<std::vector<TokenId>> bad_sequences = bad_sequences_of(sampling.bad_words, *model.tokenizer);
  std::vector<engine::GenerateRequest> made;
  for (std::size_t i = 0; i < (chat ? 1 : request.prompts.size()); ++i) {
    auto ids = chat ? chat_ids(request.chat, request.add_special_tokens, model)
                    : prompt_ids(request.prompts[i], request.add_special_tokens, model);
    if (!ids) return ApiFailure(std::move(ids).error());
    truncate(*ids, request, limits.context);
    if (ids->empty()) return bad_field(field, "expected at least one token, got an empty prompt");
    if (ids->size() >= limits.context) {
      return bad_field(field,
                       fmt::format("the prompt has {} tokens and the context holds {}, of which the answer needs at "
                                   "least one",
                                   ids->size(), limits.context));
    }
    const std::size_t room = limits.context - ids->size();
    for (std::size_t answer = 0; answer < sampling.n; ++answer) {
      engine::GenerateRequest& one = made.emplace_back();
      one.id = fmt::format("{}-{}", id, made.size() - 1);
      one.prompt = *ids;
      one.sampling = sampling.params;
      one.sampling.bad_sequences = bad_sequences;
      one.sampling.seed = seed_of(request, random_seed, i, answer);
      one.max_tokens = std::min(request.max_tokens.value_or(chat ? room : kDefaultMaxTokens), room);
      one.min_tokens = sampling.min_tokens;
      one.ignore_eos = sampling.ignore_eos;
      one.stop_ids = sampling.stop_ids;
      one.logprobs = sampling.logprobs;
      if (answer == 0) one.prompt_logprobs = prompt_logprobs_of(request);  // the others have the same prompt
      one.cache_salt = request.cache_salt;
      one.deadline = limits.deadline;
    }
  }
  return made;
}

}  // namespace nmc::http
