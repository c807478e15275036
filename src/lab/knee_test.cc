#include "lab/knee.h"

#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

// Searches a server that is good up to `capacity`, from `first` on; how many measurements it took.
std::size_t search(KneeSearch& search, double first, double capacity, std::size_t most = 40) {
  std::size_t count = 0;
  while (const auto rate = search.next(first, most)) {
    search.add(*rate, *rate <= capacity ? 1.0 : capacity / *rate);
    ++count;
  }
  return count;
}

TEST(KneeTest, ASearchEndsWithinATenthOfTheCapacityFromAnyStart) {
  for (const double first : {0.01, 1.0, 37.0, 4000.0}) {
    KneeSearch knee(0.95);
    EXPECT_LE(search(knee, first, 42), 20u);
    ASSERT_TRUE(knee.knee() && knee.fails_at());
    EXPECT_LE(*knee.knee(), 42 / 0.95);
    EXPECT_GE(*knee.fails_at(), 42);
    EXPECT_LE(*knee.fails_at() / *knee.knee(), 1.1);
  }
}

TEST(KneeTest, ASearchIsBounded) {
  KneeSearch endless(0.95);
  EXPECT_EQ(search(endless, 1, 1e300, 6), 6u);
  EXPECT_EQ(endless.knee(), 32);
  EXPECT_FALSE(endless.fails_at());
  KneeSearch hopeless(0.95);
  EXPECT_EQ(search(hopeless, 1, 0, 6), 6u);
  EXPECT_FALSE(hopeless.knee());
}

TEST(KneeTest, ARateAboveOneThatFailedIsNoKnee) {
  KneeSearch knee(0.9);
  knee.add(1, 1);
  knee.add(4, 0.95);
  knee.add(2, 0.5);
  EXPECT_EQ(knee.knee(), 1);
  EXPECT_EQ(knee.fails_at(), 2);
}

}  // namespace
}  // namespace nmc::lab
