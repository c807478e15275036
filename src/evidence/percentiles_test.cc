#include "evidence/percentiles.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace nmc::evidence {
namespace {

std::vector<double> count_to(std::size_t n) {
  std::vector<double> samples;
  for (std::size_t i = n; i > 0; --i) samples.push_back(static_cast<double>(i));
  return samples;
}

TEST(PercentilesTest, OfOneToAThousandTheyAreTheirRanks) {
  const Percentiles percentiles = percentiles_of(count_to(1000));
  ASSERT_TRUE(percentiles.at[0] && percentiles.at[1] && percentiles.at[2]);
  EXPECT_EQ(percentiles.at[0]->value, 500);
  EXPECT_EQ(percentiles.at[1]->value, 950);
  EXPECT_EQ(percentiles.at[2]->value, 990);
  EXPECT_EQ(percentiles.samples, 1000u);
  EXPECT_EQ(percentiles.mean, 500.5);
  EXPECT_EQ(percentiles.min, 1);
  EXPECT_EQ(percentiles.max, 1000);
}

TEST(PercentilesTest, FromTooFewSamplesNoneIsTold) {
  EXPECT_EQ(samples_needed(500), 10u);
  EXPECT_EQ(samples_needed(950), 100u);
  EXPECT_EQ(samples_needed(990), 500u);
  EXPECT_FALSE(percentiles_of({}).at[0]);
  EXPECT_FALSE(percentiles_of(count_to(9)).at[0]);
  EXPECT_TRUE(percentiles_of(count_to(10)).at[0]);
  EXPECT_FALSE(percentiles_of(count_to(499)).at[2]);
  EXPECT_TRUE(percentiles_of(count_to(500)).at[2]);
}

// Textbook ranks of the median: n = 20 has 6 and 15, n = 100 has 40 and 61 (96.5 %).
TEST(PercentilesTest, RanksOfTheIntervalAreThoseOfTheBinomialDistribution) {
  EXPECT_EQ(rank_interval(20, 500).low, 6u);
  EXPECT_EQ(rank_interval(20, 500).high, 15u);
  EXPECT_EQ(rank_interval(100, 500).low, 40u);
  EXPECT_EQ(rank_interval(100, 500).high, 61u);
  EXPECT_EQ(rank_interval(100, 990).high, 101u) << "a hundred samples bound the p99 on one side only";
}

// Repeated experiments with a known truth: exponential samples, whose q-quantile is -ln(1 - q).
TEST(PercentilesTest, TheIntervalHoldsTheTruthInNinetyFiveOfAHundredRuns) {
  constexpr std::size_t kRuns = 1000;
  std::array<std::size_t, 3> held{};
  for (std::size_t run = 0; run < kRuns; ++run) {
    Rng rng(run);
    std::vector<double> samples(600);
    for (double& sample : samples) sample = -std::log(1 - rng.unit());
    const Percentiles percentiles = percentiles_of(samples);
    for (std::size_t i = 0; i < held.size(); ++i) {
      const double truth = -std::log(1 - kReportedPermille[i] / 1000.0);
      held[i] += percentiles.at[i]->low <= truth && truth <= percentiles.at[i]->high;
    }
  }
  for (const std::size_t count : held) {
    EXPECT_GE(count, 950u - 3 * 7) << "three standard errors below";
    EXPECT_LT(count, 995u) << "far wider than it need be";
  }
}

}  // namespace
}  // namespace nmc::evidence
