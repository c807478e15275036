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

TEST(SamplerTest, MinPKeepsWhatIsLikelyEnoughBesideTheLikeliest) {
  // Shares of the likeliest: .223 1 .050 1 .368.
  EXPECT_EQ(draw({.min_p = 0.01f, .seed = 1}, 5000).size(), 5u);
  EXPECT_EQ(draw({.min_p = 0.1f, .seed = 1}, 5000).size(), 4u);
  EXPECT_EQ(draw({.min_p = 0.3f, .seed = 1}, 5000).size(), 3u);
  EXPECT_EQ(draw({.min_p = 1.0f, .seed = 1}, 1000).size(), 2u);
  EXPECT_EQ(draw({.temperature = 5.0f, .min_p = 0.7f, .seed = 1}, 5000).size(), 4u) << "after the temperature";
}

TokenId greedy(SamplingParams params, const History& history) {
  params.temperature = 0;
  return sample(kLogits, params, 0, history);
}

TEST(SamplerTest, BiasIsAddedToTheLogit) {
  EXPECT_EQ(greedy({.logit_bias = {{2, 3.5f}}}, {}), 2u);
  EXPECT_EQ(greedy({.logit_bias = {{1, -100.0f}, {3, -100.0f}}}, {}), 4u);
  EXPECT_EQ(greedy({.logit_bias = {{99, 100.0f}}}, {}), 1u) << "an id that isn't there is no concern";
}

TEST(SamplerTest, PresenceCountsOnceAndFrequencyEachTimeOfWhatWasGenerated) {
  const std::vector<TokenId> prompt = {1, 1, 1, 3}, generated = {1, 3, 1};
  const History history{.prompt = prompt, .generated = generated};
  EXPECT_EQ(greedy({.presence_penalty = 0.5f}, history), 1u) << "both lose the same";
  EXPECT_EQ(greedy({.presence_penalty = 1.1f}, history), 4u);
  EXPECT_EQ(greedy({.frequency_penalty = 0.4f}, history), 3u) << "1 was there twice";
  EXPECT_EQ(greedy({.frequency_penalty = 1.1f}, history), 4u);
  EXPECT_EQ(greedy({.frequency_penalty = 2.0f}, {.prompt = prompt}), 1u) << "a prompt doesn't count";
}

TEST(SamplerTest, RepetitionCountsPromptAndAnswerOnce) {
  const std::vector<TokenId> prompt = {1, 1}, generated = {3, 2};
  EXPECT_EQ(greedy({.repetition_penalty = 1.5f}, {.prompt = prompt}), 3u);
  EXPECT_EQ(greedy({.repetition_penalty = 1.9f}, {.prompt = prompt, .generated = generated}), 1u) << "2/1.9 beats 1";
  EXPECT_EQ(greedy({.repetition_penalty = 2.1f}, {.prompt = prompt, .generated = generated}), 4u);
  const std::vector<float> negative = {-1.0f, -1.5f};
  const std::vector<TokenId> first = {0};
  EXPECT_EQ(sample(negative, {.temperature = 0, .repetition_penalty = 2.0f}, 0, {.prompt = first}), 1u)
      << "a negative logit is multiplied";
}

TEST(SamplerTest, WhatIsBarredIsNeverDrawn) {
  const std::vector<TokenId> barred = {1, 3};
  EXPECT_EQ(greedy({}, {.barred = barred}), 4u);
  for (std::size_t position = 0; position < 500; ++position) {
    const TokenId id = sample(kLogits, {.seed = 4}, position, {.barred = barred});
    EXPECT_TRUE(id != 1 && id != 3);
  }
}

TEST(SamplerTest, LogprobsAreOfTheModelAlone) {
  const std::vector<Logprob> told = logprobs_of(kLogits, 2, 3);
  ASSERT_EQ(told.size(), 4u);
  double total = 0;
  for (const float logit : kLogits) total += std::exp(logit);
  EXPECT_EQ(told[0].id, 2u);
  EXPECT_NEAR(told[0].logprob, -1.0 - std::log(total), 1e-6);
  EXPECT_EQ(told[1].id, 1u);
  EXPECT_EQ(told[2].id, 3u);
  EXPECT_EQ(told[3].id, 4u);
  EXPECT_NEAR(told[1].logprob, 2.0 - std::log(total), 1e-6);
  EXPECT_EQ(logprobs_of(kLogits, 0, 0).size(), 1u);
  EXPECT_EQ(logprobs_of(kLogits, 0, 99).size(), 6u);
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

TEST(SamplerTest, OnlyAllowedIdsAreDrawn) {
  SamplingParams params{.temperature = 5.0f, .seed = 1};
  params.allowed_ids = {0, 4, 9};  // there is no 9
  const auto counts = draw(params, 500);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(0) && counts.contains(4));
  EXPECT_EQ(greedy(params, {}), 4u);
  EXPECT_EQ(greedy({.top_k = 2, .allowed_ids = {2}}, {}), 2u);
  // What is barred comes all the same where it is all that is allowed.
  const std::vector<TokenId> barred = {2};
  EXPECT_EQ(greedy({.allowed_ids = {2}}, {.barred = barred}), 2u);
  EXPECT_EQ(greedy({.allowed_ids = {2, 0}}, {.barred = barred}), 0u);
}

TEST(SamplerTest, BadSequencesAreNeverCompleted) {
  SamplingParams params;
  params.bad_sequences = {{3, 4, 1}, {0}};
  const auto after = [&](std::vector<TokenId> generated) {
    const std::vector<TokenId> prompt = {3, 4};  // doesn't count
    return greedy(params, {.prompt = prompt, .generated = generated});
  };
  EXPECT_EQ(after({}), 1u);
  EXPECT_EQ(after({4}), 1u);
  EXPECT_EQ(after({3, 4}), 3u);
  EXPECT_EQ(after({1, 3, 4}), 3u);
  EXPECT_EQ(after({3, 4, 4}), 1u);
  params.temperature = 5.0f;
  EXPECT_FALSE(draw(params, 500).contains(0));
}

}  // namespace
}  // namespace nmc::engine
