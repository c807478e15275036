#include "lab/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/mutex.h"

namespace nmc::lab {
namespace {

using std::chrono::milliseconds;

// Takes a millisecond of its core.
Result<void> work(std::size_t) {
  const Nanos end = real_clock().now() + milliseconds(1);
  while (real_clock().now() < end) {
  }
  return {};
}

TEST(ClosedLoad, CallsFromEachThreadAndTakesEachTime) {
  Mutex mutex;
  std::set<std::size_t> threads;
  std::atomic<std::size_t> calls{0};
  const auto run = run_closed({.threads = 3, .duration = milliseconds(30)}, [&](std::size_t thread) -> Result<void> {
    ++calls;
    {
      MutexLock lock(mutex);
      threads.insert(thread);
    }
    return work(thread);
  });
  ASSERT_TRUE(run);
  EXPECT_EQ(threads, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_EQ(run->us.size(), calls.load());
  EXPECT_TRUE(std::is_sorted(run->us.begin(), run->us.end()));
  EXPECT_GE(run->us.front(), 1000);
  EXPECT_GE(run->seconds, 0.030);
}

TEST(ClosedLoad, WhatHappensBetweenCallsIsInNoTime) {
  const auto run = run_closed(
      {.duration = milliseconds(1), .calls_max = 20}, [](std::size_t) { return Result<void>(); },
      [](std::size_t thread) { return work(thread); });
  ASSERT_TRUE(run);
  EXPECT_LT(quantile(run->us, 0.5), 500);
  EXPECT_LT(run->seconds * 1e6, 1000.0 * static_cast<double>(run->us.size()));
}

TEST(ClosedLoad, EndsAtItsMostCallsAndMakesItsFewest) {
  const auto nothing = [](std::size_t) { return Result<void>(); };
  EXPECT_EQ(run_closed({.threads = 2, .duration = std::chrono::seconds(60), .calls_max = 10}, nothing)->us.size(), 10u);
  EXPECT_EQ(run_closed({.duration = Nanos(0), .calls_min = 4}, nothing)->us.size(), 4u);
}

TEST(ClosedLoad, TheFirstErrorEndsAllThreads) {
  std::atomic<int> calls{0};
  const auto run = run_closed({.threads = 4, .duration = std::chrono::seconds(60)}, [&](std::size_t) -> Result<void> {
    if (++calls == 20) return not_found("the key");
    return {};
  });
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kNotFound);
}

TEST(ClosedLoad, StopsWhenAskedTo) {
  const auto run = run_closed(
      {.threads = 2, .duration = std::chrono::seconds(60), .calls_max = SIZE_MAX, .should_stop = [] { return true; }},
      work);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kCancelled);
}

TEST(OpenLoad, WaitingGrowsWithTheLoadAndServiceDoesNot) {
  const LoadOptions options{.duration = milliseconds(200)};
  const auto idle = run_open(options, 100, 1, work);    // a tenth of what one thread can do
  const auto over = run_open(options, 2'000, 1, work);  // twice that
  ASSERT_TRUE(idle && over);
  EXPECT_NEAR(static_cast<double>(over->wait_us.size()), 400, 100);
  EXPECT_GE(over->service_us.front(), 1000);
  // After 200 ms of arrivals as many are left as were served.
  EXPECT_GT(over->wait_us.back(), 100'000);
  EXPECT_LT(quantile(idle->wait_us, 0.5), quantile(over->wait_us, 0.5));
}

TEST(Quantile, IsASample) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({1, 2, 3}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2, 3}, 0.99), 3);
  EXPECT_EQ(quantile({1, 2, 3}, 0), 1);
}

}  // namespace
}  // namespace nmc::lab
