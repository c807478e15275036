#include "evidence/paired.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace nmc::evidence {
namespace {

// A start with its own luck, and the requests' noise within it.
Cluster start(double ratio, std::size_t pairs = 4) { return Cluster(pairs, Pair{10, 10 * ratio}); }

std::vector<Cluster> starts(std::vector<double> ratios) {
  std::vector<Cluster> made;
  for (const double ratio : ratios) made.push_back(start(ratio));
  return made;
}

double normal(Rng& rng) { return std::sqrt(-2 * std::log(1 - rng.unit())) * std::cos(2 * M_PI * rng.unit()); }

TEST(PairedEffect, IsTheGeometricMeanOverStarts) {
  const Effect effect = effect_of(starts({0.5, 2, 1}));
  EXPECT_NEAR(effect.ratio, 1, 1e-12);
  EXPECT_EQ(effect.clusters, 3u);
  EXPECT_EQ(effect.pairs, 12u);
}

TEST(PairedEffect, AStartCountsTheSameWhateverItsNumberOfRequests) {
  EXPECT_NEAR(effect_of({start(0.5, 1000), start(2, 1)}).ratio, 1, 1e-12);
}

TEST(PairedEffect, TheOrderOfStartsMakesNoDifference) {
  const Effect a = effect_of(starts({0.8, 0.9, 1.1, 0.7, 1, 0.95}));
  const Effect b = effect_of(starts({1, 0.95, 0.7, 0.9, 0.8, 1.1}));
  EXPECT_EQ(a.ratio, b.ratio);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
}

// How often the interval holds the truth where starts differ by `luck`.
template <typename Luck>
double coverage(std::size_t clusters, Luck luck) {
  constexpr int kTrials = 400;
  Rng rng(clusters);
  int holds = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<Cluster> made(clusters);
    for (Cluster& cluster : made) {
      const double of_start = luck(rng);
      for (int i = 0; i < 4; ++i) cluster.push_back({10, 10 * std::exp(of_start + 0.05 * normal(rng))});
    }
    const Effect effect = effect_of(made);
    holds += effect.low <= 1 && effect.high >= 1;
  }
  return static_cast<double>(holds) / kTrials;
}

TEST(PairedEffect, TheIntervalHoldsTheTruthAsOftenAsItSays) {
  const auto symmetric = [](Rng& rng) { return 0.2 * normal(rng); };
  const auto skewed = [](Rng& rng) { return 0.1 * (-std::log(1 - rng.unit()) - 1); };  // exponential, of mean 0
  for (const std::size_t clusters : {6u, 12u}) {
    EXPECT_GE(coverage(clusters, symmetric), 0.92) << clusters;
    EXPECT_LE(coverage(clusters, symmetric), 0.985) << clusters << ": wider than it has to be";
    EXPECT_GE(coverage(clusters, skewed), 0.88) << clusters;
  }
}

TEST(PairedEffect, AVerdictNeedsTheWholeIntervalOnItsSide) {
  const auto outcome = [](double low, double high, std::size_t clusters = 6) {
    return judge_effect({.ratio = std::sqrt(low * high), .low = low, .high = high, .clusters = clusters}, 0.05);
  };
  EXPECT_EQ(outcome(0.5, 0.94), Outcome::kWin);
  EXPECT_EQ(outcome(0.5, 0.96), Outcome::kInsufficient);
  EXPECT_EQ(outcome(1.06, 2), Outcome::kLoss);
  EXPECT_EQ(outcome(1.04, 2), Outcome::kInsufficient);
  EXPECT_EQ(outcome(0.96, 1.04), Outcome::kNeutral);
  EXPECT_EQ(outcome(0.5, 0.94, 5), Outcome::kInsufficient) << "five starts are too few, whatever they say";
}

}  // namespace
}  // namespace nmc::evidence
