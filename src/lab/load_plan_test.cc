#include "lab/load_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nmc::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LoadPlanTest, UniformArrivalsAreEquallyFarApartAndEndBeforeTheDuration) {
  const auto plan = plan_arrivals({.arrivals = Arrivals::kUniform, .per_second = 4, .duration = seconds(1)});
  EXPECT_EQ(plan, (std::vector<Nanos>{milliseconds(0), milliseconds(250), milliseconds(500), milliseconds(750)}));
}

TEST(LoadPlanTest, BurstsComeAtOnceAndKeepTheRate) {
  const auto plan =
      plan_arrivals({.arrivals = Arrivals::kBursts, .per_second = 6, .duration = seconds(1), .burst_size = 3});
  EXPECT_EQ(plan, (std::vector<Nanos>{milliseconds(0), milliseconds(0), milliseconds(0), milliseconds(500),
                                      milliseconds(500), milliseconds(500)}));
  EXPECT_EQ(densest(plan, milliseconds(100)), 3u);
  EXPECT_EQ(densest(plan, milliseconds(501)), 6u);
  EXPECT_EQ(densest({}, seconds(1)), 0u);
}

TEST(LoadPlanTest, PoissonGapsHaveTheMeanAndTheSpreadOfExponentialOnes) {
  const auto plan = plan_arrivals({.per_second = 100, .duration = seconds(400), .seed = 7});
  ASSERT_TRUE(std::is_sorted(plan.begin(), plan.end()));
  const auto n = static_cast<double>(plan.size());
  EXPECT_NEAR(n, 40'000, 4 * std::sqrt(40'000.0));
  double sum = 0, squares = 0;
  Nanos before{0};
  for (const Nanos at : plan) {
    const double gap = to_ms(at - before);
    sum += gap;
    squares += gap * gap;
    before = at;
  }
  const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
  EXPECT_NEAR(mean, 10, 0.2);
  EXPECT_NEAR(deviation / mean, 1, 0.03) << "of an exponential distribution both are equal";
}

TEST(LoadPlanTest, EqualSeedsGiveEqualPlansAndOthersDoNot) {
  const PlanOptions options{.per_second = 50, .duration = seconds(10), .seed = 1};
  PlanOptions other = options;
  other.seed = 2;
  EXPECT_EQ(plan_arrivals(options), plan_arrivals(options));
  EXPECT_NE(plan_arrivals(options), plan_arrivals(other));
}

TEST(LoadPlanTest, NoMoreRequestsThanAskedFor) {
  EXPECT_EQ(plan_arrivals({.per_second = 1000, .duration = seconds(100), .requests_max = 17}).size(), 17u);
}

}  // namespace
}  // namespace nmc::lab
