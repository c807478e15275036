#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace nmc {
namespace {

// First outputs of splitmix64 from state 0, as its authors' reference code prints them.
TEST(Mix64, IsSplitmix64) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(kStep), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(mix64(2 * kStep), 0x06c45d188009454fu);
}

TEST(KeyedRandom, DependsOnEachArgumentAndNothingElse) {
  static_assert(keyed_random(1, 2, 3) == keyed_random(1, 2, 3));
  EXPECT_NE(keyed_random(1, 2, 3), keyed_random(2, 2, 3));
  EXPECT_NE(keyed_random(1, 2, 3), keyed_random(1, 3, 3));
  EXPECT_NE(keyed_random(1, 2, 3), keyed_random(1, 2, 4));
  EXPECT_NE(keyed_random(1, 2, 3), keyed_random(3, 2, 1));
}

TEST(ToUnit, StaysBelowOne) {
  EXPECT_EQ(to_unit(0), 0.0);
  EXPECT_LT(to_unit(~std::uint64_t{0}), 1.0);
  EXPECT_EQ(to_unit(std::uint64_t{1} << 63), 0.5);
}

TEST(Rng, ASeedIsASequence) {
  Rng a(7), b(7), c(8);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t draw = a.next();
    EXPECT_EQ(draw, b.next());
    EXPECT_NE(draw, c.next());
  }
}

TEST(Rng, BelowIsInRangeAndEven) {
  Rng rng(1);
  EXPECT_EQ(rng.below(1), 0u);
  constexpr std::size_t kFaces = 6;
  constexpr int kDraws = 60'000;
  std::array<int, kFaces> count{};
  for (int i = 0; i < kDraws; ++i) ++count.at(rng.below(kFaces));
  // Six standard deviations of a binomial around 10,000.
  for (const int n : count) EXPECT_NEAR(n, kDraws / 6, 550);
  for (int i = 0; i < 100; ++i) EXPECT_LT(rng.below(~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(Rng, UnitIsCentred) {
  Rng rng(2);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double draw = rng.unit();
    ASSERT_GE(draw, 0.0);
    ASSERT_LT(draw, 1.0);
    sum += draw;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(Rng, DrivesStandardAlgorithms) {
  std::vector<int> order(100), sorted(100);
  std::iota(order.begin(), order.end(), 0);
  sorted = order;
  Rng rng(3);
  std::shuffle(order.begin(), order.end(), rng);
  EXPECT_NE(order, sorted);
  EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), sorted.begin()));
}

}  // namespace
}  // namespace nmc
