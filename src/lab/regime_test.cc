#include "lab/regime.h"

#include <gtest/gtest.h>

#include <vector>

namespace nmc::lab {
namespace {

// Times on the line.
std::vector<SizeTime> points_on(CostLine line, std::initializer_list<std::size_t> sizes) {
  std::vector<SizeTime> points;
  for (const std::size_t bytes : sizes)
    points.push_back({bytes, line.fixed_us + line.us_per_byte * static_cast<double>(bytes)});
  return points;
}

TEST(CostLine, IsFoundAgainFromItsPoints) {
  const CostLine line = fit_cost_line(points_on({5, 1e-4}, {4096, 65'536, 1 << 20, 64 << 20}));
  EXPECT_NEAR(line.fixed_us, 5, 1e-6);
  EXPECT_NEAR(line.us_per_byte, 1e-4, 1e-10);
}

TEST(CostLine, HasNoPartBelowZero) {
  const CostLine faster_when_larger = fit_cost_line(std::vector<SizeTime>{{4096, 10}, {1 << 20, 9}});
  EXPECT_EQ(faster_when_larger.us_per_byte, 0);
  EXPECT_NEAR(faster_when_larger.fixed_us, 9.5, 0.1);
  const CostLine steeper_than_its_size = fit_cost_line(std::vector<SizeTime>{{1000, 1}, {2000, 4}});
  EXPECT_EQ(steeper_than_its_size.fixed_us, 0);
  EXPECT_GT(steeper_than_its_size.us_per_byte, 0);
}

TEST(CostLine, OfOneSizeSaysNothingOfBytes) {
  const CostLine line = fit_cost_line(std::vector<SizeTime>{{4096, 2}, {4096, 2}});
  EXPECT_NEAR(line.fixed_us, 2, 1e-9);
  EXPECT_EQ(line.us_per_byte, 0);
}

TEST(Regime, IsToldByWhereTheTimeGoes) {
  const CostLine line{10, 1e-3};  // 10,000 bytes cost as much as the rest
  EXPECT_EQ(regime_at(line, 0), Regime::kFixedCost);
  EXPECT_EQ(regime_at(line, 3'000), Regime::kFixedCost);
  EXPECT_EQ(regime_at(line, 3'500), Regime::kBetween);
  EXPECT_EQ(regime_at(line, 29'000), Regime::kBetween);
  EXPECT_EQ(regime_at(line, 31'000), Regime::kSaturated);
  EXPECT_EQ(regime_at({10, 0}, 1 << 30), Regime::kFixedCost) << "a view in place";
}

}  // namespace
}  // namespace nmc::lab
