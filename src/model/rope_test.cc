#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace nmc::model {
namespace {

ModelConfig config_with(RopeScaling scaling) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000.0f;
  config.rope_scaling = scaling;
  return config;
}

constexpr RopeScaling kLlama3{.kind = RopeScaling::Kind::kLlama3,
                              .factor = 8.0f,
                              .low_freq_factor = 1.0f,
                              .high_freq_factor = 4.0f,
                              .original_max_positions = 8192.0f};

std::vector<double> plain() {
  std::vector<double> frequencies;
  for (int i = 0; i < 64; ++i) frequencies.push_back(std::pow(500000.0, -2.0 * i / 128));
  return frequencies;
}

TEST(RopeTest, FrequenciesFallFromOneByPowersOfTheta) {
  const std::vector<float> got = inverse_frequencies(config_with({}));
  const std::vector<double> want = plain();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], want[i] * 1e-5) << i;
}

TEST(RopeTest, LinearScalingDividesAll) {
  const std::vector<float> got = inverse_frequencies(config_with({.kind = RopeScaling::Kind::kLinear, .factor = 4.0f}));
  const std::vector<double> want = plain();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i] / 4, want[i] * 1e-5) << i;
}

TEST(RopeTest, Llama3KeepsHighFrequenciesDividesLowOnesAndJoinsThem) {
  const std::vector<float> got = inverse_frequencies(config_with(kLlama3));
  const std::vector<double> whole = plain();
  int kept = 0, divided = 0, between = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double turns = 8192 * whole[i] / (2 * std::numbers::pi);
    const double share = got[i] / whole[i];
    if (turns > 4) {
      EXPECT_EQ(got[i], inverse_frequencies(config_with({}))[i]) << "a kept frequency keeps its bits";
      ++kept;
    } else if (turns < 1) {
      EXPECT_NEAR(share, 1.0 / 8, 1e-5) << i;
      ++divided;
    } else {
      EXPECT_NEAR(share, (turns - 1) / 3 + (4 - turns) / 3 / 8, 1e-4) << i;
      ++between;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(between, 2);
}

}  // namespace
}  // namespace nmc::model
