#include "cli/chart_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace nmc::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> labels(const AxisScale& scale, bool at_values) {
  std::vector<std::string> labels;
  for (const Tick& tick : scale.ticks(at_values)) labels.push_back(tick.label);
  return labels;
}

TEST(ChartAxisTest, BeginsAtZeroUnlessThereAreNegativeOnes) {
  const AxisScale positive({}, {3, 10});
  EXPECT_EQ(positive.at(0), 0);
  EXPECT_EQ(positive.at(5), 0.5);
  const AxisScale mixed({}, {-5, 15});
  EXPECT_EQ(mixed.at(-5), 0);
  EXPECT_EQ(mixed.at(0), 0.25);
}

TEST(ChartAxisTest, TicksAreRoundNumbers) {
  EXPECT_THAT(labels(AxisScale({}, {0, 0.87}), false), ElementsAre("0", "0.2", "0.4", "0.6", "0.8"));
  EXPECT_THAT(labels(AxisScale({.log = true}, {0.07, 400}), false), ElementsAre("0.1", "1", "10", "100"));
}

TEST(ChartAxisTest, FewValuesAreTicksThemselves) {
  EXPECT_THAT(labels(AxisScale({.log = true, .bytes = true}, {1 << 20, 4096, 4096}), true),
              ElementsAre("4 KiB", "1 MiB"));
}

TEST(ChartAxisTest, EqualStepsOfALogarithmicAxisAreEqualFactors) {
  const AxisScale scale({.log = true}, {1, 1000});
  EXPECT_NEAR(scale.at(10) - scale.at(1), scale.at(1000) - scale.at(100), 1e-12);
  EXPECT_EQ(scale.at(0), 0) << "what isn't above 0 lies at the lower end";
}

TEST(ChartAxisTest, AnyNumbersWithinTheBoundsGivePlacesAndAFewTicks) {
  const std::vector<std::vector<double>> cases = {
      {}, {0}, {-1}, {1e30}, {-1e30, 1e30}, {1e-300, 1e30}, {5, 5, 5}, {1e30, 1e30 * (1 - 1e-16)}, {-3e-31, 2e-31}};
  for (const std::vector<double>& values : cases) {
    for (const bool log : {false, true}) {
      const AxisScale scale({.log = log}, values);
      for (const double value : values) {
        EXPECT_GE(scale.at(value), 0);
        EXPECT_LE(scale.at(value), 1);
      }
      for (const bool at_values : {false, true}) {
        const std::vector<Tick> ticks = scale.ticks(at_values);
        EXPECT_GE(ticks.size(), 1u);
        EXPECT_LE(ticks.size(), 12u);
        for (const Tick& tick : ticks) EXPECT_TRUE(std::isfinite(tick.at)) << tick.label;
      }
    }
  }
}

}  // namespace
}  // namespace nmc::cli
