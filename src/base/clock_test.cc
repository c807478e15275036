#include "base/clock.h"

#include <gtest/gtest.h>

namespace nmc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ManualClock, MovesOnlyByHand) {
  ManualClock clock;
  const Nanos start = clock.now();
  const std::int64_t start_unix = clock.unix_seconds();
  EXPECT_EQ(clock.now(), start);
  clock.advance(milliseconds(1500));
  EXPECT_EQ(clock.now() - start, milliseconds(1500));
  EXPECT_EQ(clock.unix_seconds() - start_unix, 1);
}

TEST(Stopwatch, CountsItsClock) {
  ManualClock clock;
  clock.advance(seconds(5));
  const Stopwatch watch(clock);
  EXPECT_EQ(watch.elapsed(), Nanos(0));
  clock.advance(Nanos(2'500'000));
  EXPECT_EQ(watch.elapsed_ms(), 2.5);
}

TEST(RealClock, NeverGoesBack) {
  Nanos last = real_clock().now();
  for (int i = 0; i < 10'000; ++i) {
    const Nanos now = real_clock().now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, KnowsTheCentury) { EXPECT_GT(real_clock().unix_seconds(), 1'700'000'000); }

TEST(ToMs, KeepsFractions) { EXPECT_EQ(to_ms(Nanos(1'250'000)), 1.25); }

}  // namespace
}  // namespace nmc
