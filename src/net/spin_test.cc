#include "net/spin.h"

#include <gtest/gtest.h>

namespace nmc::net {
namespace {

// How many of `waits` waits looked at all, of which the last caught something if `catches`.
int looks_in(Spin& spin, int waits, bool catches) {
  int looked = 0;
  for (int i = 0; i < waits; ++i) {
    bool did = false;
    const bool caught = spin.catches([&] {
      did = true;
      return catches;
    });
    EXPECT_EQ(caught, did && catches);
    looked += did ? 1 : 0;
  }
  return looked;
}

TEST(Spin, GoesOnForAsLongAsItCatches) {
  Spin spin(std::chrono::seconds(10));
  EXPECT_EQ(looks_in(spin, 100, true), 100);
}

TEST(Spin, RestsTheLongerTheOftenerItLookedInVain) {
  Spin spin(Nanos{1});
  // One look, then rests of 1, 3, 7, 15, 31, 63, 63 waits, with a look between them.
  EXPECT_EQ(looks_in(spin, 1 + 1 + 1 + 3 + 1 + 7 + 1 + 15 + 1 + 31 + 1 + 63 + 1 + 63, false), 7);
  EXPECT_EQ(looks_in(spin, 1 + 63, false), 1);
}

TEST(Spin, StartsAfreshWhenALookCatches) {
  Spin spin(Nanos{1});
  EXPECT_EQ(looks_in(spin, 1 + 1 + 1 + 3 + 1 + 7, false), 3);
  EXPECT_EQ(looks_in(spin, 1, true), 1);
  EXPECT_EQ(looks_in(spin, 1 + 1 + 1, false), 2);
}

TEST(Spin, NeverLooksWhereThereIsNoTimeForIt) {
  Spin spin(Nanos::zero());
  EXPECT_EQ(looks_in(spin, 100, true), 0);
}

}  // namespace
}  // namespace nmc::net
