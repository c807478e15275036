#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace nmc::engine {
namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f};

std::map<TokenId, int> draw(const SamplingParams& params, int times) {
  std::map<TokenId, int> counts;
  for (int position = 0; position < times; ++position)
    ++counts[sample(kLogits, params, static_cast<std::size_t>(position))];
  return counts;
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongEquals) { EXPECT_EQ(sample(kLogits, {.temperature = 0}, 3), 1u); }

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
  constexpr int kDraws = 200'000;
  const auto counts = draw({.temperature = 1.0f, .seed = 3}, kDraws);
  double total = 0;
  for (const float logit : kLogits) total += std::exp(logit);
  for (std::size_t id = 0; id < kLogits.size(); ++id) {
    const double expected = std::exp(kLogits[id]) / total;
    const double spread = std::sqrt(expected * (1 - expected) / kDraws);
    EXPECT_NEAR(counts.at(static_cast<TokenId>(id)) / static_cast<double>(kDraws), expected, 5 * spread) << id;
  }
}

TEST(SamplerTest, TopKKeepsTheLikeliest) {
  const auto counts = draw({.temperature = 5.0f, .top_k = 3, .seed = 1}, 2000);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(3) && counts.contains(4));
  EXPECT_EQ(draw({.temperature = 5.0f, .top_k = 1, .seed = 1}, 100).begin()->first, 1u);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesTheMass) {
  // Softmax: .085 .380 .019 .380 .140; 0.7 needs the two of .380, 0.8 a third.
  EXPECT_EQ(draw({.temperature = 1.0f, .top_p = 0.7f, .seed = 1}, 2000).size(), 2u);
  EXPECT_EQ(draw({.temperature = 1.0f, .top_p = 0.8f, .seed = 1}, 2000).size(), 3u);
  EXPECT_EQ(draw({.temperature = 1.0f, .top_p = 1e-6f, .seed = 1}, 100).size(), 1u);
}

TEST(SamplerTest, SameSeedAndPositionGiveTheSameToken) {
  const SamplingParams params{.temperature = 1.3f, .top_p = 0.9f, .seed = 77};
  for (std::size_t position = 0; position < 100; ++position) {
    EXPECT_EQ(sample(kLogits, params, position), sample(kLogits, params, position));
  }
}

TEST(SamplerTest, NotANumberIsNeverDrawn) {
  std::vector<float> logits(50, std::numeric_limits<float>::quiet_NaN());
  logits[17] = -3.0f;
  for (std::size_t position = 0; position < 50; ++position) EXPECT_EQ(sample(logits, {.seed = 5}, position), 17u);
}

}  // namespace
}  // namespace nmc::engine
