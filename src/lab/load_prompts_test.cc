#include "lab/load_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nmc::lab {
namespace {

std::size_t common_prefix(const LoadPrompt& a, const LoadPrompt& b) {
  const auto ends = std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return static_cast<std::size_t>(ends.first - a.tokens.begin());
}

// Chance makes one token of 246 equal in 246 cases.
constexpr std::size_t kByChance = 4;

TEST(LoadPromptsTest, ASharedPrefixIsEqualTokenByTokenAndTheRestIsNot) {
  const LoadPrompts prompts({.prompt_tokens = TokenLengths(400), .shared_part = 0.75});
  const LoadPrompt a = prompts.prompt(3), b = prompts.prompt(900);
  EXPECT_EQ(a.tokens.size(), 400u);
  EXPECT_EQ(a.shared_tokens, 300u);
  EXPECT_GE(common_prefix(a, b), 300u);
  EXPECT_LE(common_prefix(a, b), 300u + kByChance);
}

TEST(LoadPromptsTest, DistinctPromptsHaveNothingInCommon) {
  const LoadPrompts prompts({.workload = Workload::kDistinct, .prompt_tokens = TokenLengths(400)});
  for (std::size_t i = 1; i < 50; ++i) EXPECT_LE(common_prefix(prompts.prompt(0), prompts.prompt(i)), kByChance);
}

TEST(LoadPromptsTest, AsManyDocumentsAsAskedForAreAskedAbout) {
  const LoadPrompts prompts(
      {.workload = Workload::kLongDocument, .prompt_tokens = TokenLengths(200), .shared_part = 0.9, .groups = 4});
  std::set<std::vector<std::uint32_t>> documents;
  for (std::size_t i = 0; i < 200; ++i) {
    LoadPrompt prompt = prompts.prompt(i);
    prompt.tokens.resize(prompt.shared_tokens);
    documents.insert(prompt.tokens);
  }
  EXPECT_EQ(documents.size(), 4u);
}

TEST(LoadPromptsTest, NamespacesAskTheSameUnderDifferentSalts) {
  const LoadPrompts prompts(
      {.workload = Workload::kNamespaces, .prompt_tokens = *TokenLengths::parse("20-60"), .groups = 3});
  std::set<std::string> salts;
  for (std::size_t i = 30; i < 33; ++i) {
    EXPECT_EQ(prompts.prompt(i).tokens, prompts.prompt(30).tokens);
    salts.insert(prompts.prompt(i).salt);
  }
  EXPECT_EQ(salts.size(), 3u);
  EXPECT_NE(prompts.prompt(33).tokens, prompts.prompt(30).tokens);
}

TEST(LoadPromptsTest, IdsStayInTheRangeAndReachItsEnds) {
  const LoadPrompts prompts(
      {.workload = Workload::kDistinct, .prompt_tokens = TokenLengths(500), .ids = {.low = 7, .high = 9}});
  std::set<std::uint32_t> seen;
  for (const std::uint32_t id : prompts.prompt(0).tokens) seen.insert(id);
  EXPECT_EQ(seen, (std::set<std::uint32_t>{7, 8, 9}));
}

TEST(LoadPromptsTest, EqualSeedsGiveEqualPromptsAndOthersDoNot) {
  EXPECT_EQ(LoadPrompts({.seed = 5}).prompt(7).tokens, LoadPrompts({.seed = 5}).prompt(7).tokens);
  EXPECT_NE(LoadPrompts({.seed = 5}).prompt(7).tokens, LoadPrompts({.seed = 6}).prompt(7).tokens);
}

TEST(LoadPromptsTest, SharedBlocksOfATraceAreSharedPrefixes) {
  LoadTrace trace{.block_tokens = 16, .digest = ""};
  trace.requests = {{.input_tokens = 40, .output_tokens = 3, .block_hashes = {0, 1, 2}},
                    {.input_tokens = 40, .output_tokens = 4, .block_hashes = {0, 1, 3}},
                    {.input_tokens = 30, .output_tokens = 5, .block_hashes = {8, 1}}};
  const LoadPrompts prompts({.workload = Workload::kTrace, .trace = std::make_shared<LoadTrace>(std::move(trace))});
  EXPECT_GE(common_prefix(prompts.prompt(0), prompts.prompt(1)), 32u);
  EXPECT_LT(common_prefix(prompts.prompt(0), prompts.prompt(1)), 40u);
  EXPECT_LE(common_prefix(prompts.prompt(0), prompts.prompt(2)), kByChance);
  EXPECT_EQ(prompts.prompt(2).tokens.size(), 30u);
  EXPECT_EQ(prompts.prompt(2).output_tokens, 5u);
  EXPECT_EQ(prompts.prompt(3).tokens, prompts.prompt(0).tokens) << "beyond its end it begins anew";
}

TEST(LoadPromptsTest, EqualTokensGiveEqualWordsAndOthersDoNot) {
  std::set<std::string> words;
  for (std::uint32_t id = 0; id < 20'000; ++id) words.insert(words_of({id}));
  EXPECT_EQ(words.size(), 20'000u);
  EXPECT_EQ(words_of({1, 2}), words_of({1}) + " " + words_of({2}));
  EXPECT_EQ(words_of({}), "");
}

}  // namespace
}  // namespace nmc::lab
