#include "model/bpe_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/rng.h"

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<kv::TokenId> merged(const BpeMerger& merger, const std::vector<kv::TokenId>& ids) {
  BpeMerger::Scratch scratch;
  std::vector<kv::TokenId> out;
  merger.merge(ids, scratch, out);
  return out;
}

// The definition: while any rule applies, apply the earliest one at its leftmost place.
std::vector<kv::TokenId> merged_naively(std::span<const MergeRule> rules, std::vector<kv::TokenId> ids) {
  for (;;) {
    std::size_t best_rule = rules.size();
    std::size_t best_at = 0;
    for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
      for (std::size_t rule = 0; rule < best_rule; ++rule) {
        if (rules[rule].left == ids[at] && rules[rule].right == ids[at + 1]) {
          best_rule = rule;
          best_at = at;
        }
      }
    }
    if (best_rule == rules.size()) return ids;
    ids[best_at] = rules[best_rule].joined;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Random rules over the letters a, b, c that join texts, as training would make them.
std::vector<MergeRule> random_rules(Rng& rng) {
  std::vector<std::string> texts = {"a", "b", "c"};
  std::map<std::string, kv::TokenId> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
  std::map<std::pair<kv::TokenId, kv::TokenId>, bool> used;
  std::vector<MergeRule> rules;
  for (int i = 0; i < 25; ++i) {
    const auto left = static_cast<kv::TokenId>(rng.below(texts.size()));
    const auto right = static_cast<kv::TokenId>(rng.below(texts.size()));
    if (!used.emplace(std::pair(left, right), true).second) continue;
    const std::string text = texts[left] + texts[right];
    const auto [it, is_new] = ids.emplace(text, static_cast<kv::TokenId>(texts.size()));
    if (is_new) texts.push_back(text);
    rules.push_back({left, right, it->second});
  }
  return rules;
}

TEST(BpeMergerTest, TheEarliestRuleWinsThenTheLeftmostPlace) {
  const std::vector<MergeRule> rules = {{1, 2, 10}, {0, 1, 11}, {0, 0, 12}};
  const BpeMerger merger(rules);
  EXPECT_THAT(merged(merger, {0, 1, 2}), ElementsAre(0, 10));
  EXPECT_THAT(merged(merger, {0, 0, 0}), ElementsAre(12, 0));
  EXPECT_THAT(merged(merger, {2, 1}), ElementsAre(2, 1));
  EXPECT_THAT(merged(merger, {7}), ElementsAre(7));
  EXPECT_THAT(merged(merger, {}), IsEmpty());
}

TEST(BpeMergerTest, NoRulesMergeNothing) { EXPECT_THAT(merged(BpeMerger({}), {0, 0}), ElementsAre(0, 0)); }

TEST(BpeMergerTest, EqualsTheDefinition) {
  Rng rng(11);
  for (int round = 0; round < 400; ++round) {
    const std::vector<MergeRule> rules = random_rules(rng);
    const BpeMerger merger(rules);
    for (int text = 0; text < 5; ++text) {
      std::vector<kv::TokenId> ids(rng.below(40));
      for (kv::TokenId& id : ids) id = static_cast<kv::TokenId>(rng.below(3));
      EXPECT_EQ(merged(merger, ids), merged_naively(rules, ids)) << "round " << round;
    }
  }
}

TEST(BpeMergerTest, ALongPieceTakesNoQuadraticTime) {
  std::vector<MergeRule> rules = {{0, 0, 1}};
  for (kv::TokenId id = 1; id < 20; ++id) rules.push_back({id, id, id + 1});
  const std::vector<kv::TokenId> out = merged(BpeMerger(rules), std::vector<kv::TokenId>(1 << 20, 0));
  EXPECT_THAT(out, ElementsAre(20));
}

}  // namespace
}  // namespace nmc::model
