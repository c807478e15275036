#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace nmc {
namespace {

TEST(ThreadPoolTest, CoversEveryItemOnceInRangesOfAtMostAGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const std::size_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const std::size_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(count);
        pool.parallel_for(count, grain, [&](std::size_t begin, std::size_t end, int thread) {
          EXPECT_LT(begin, end);
          EXPECT_LE(end - begin, grain);
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          for (std::size_t i = begin; i < end; ++i) seen[i].fetch_add(1, std::memory_order_relaxed);
        });
        for (const std::atomic<int>& times : seen) ASSERT_EQ(times.load(), 1);
      }
    }
  }
}

TEST(ThreadPoolTest, CallerSeesWhatTheThreadsWrote) {
  ThreadPool pool(4);
  std::vector<std::size_t> plain(1000);  // not atomic: a race is the sanitizer's to find
  for (std::size_t round = 1; round <= 200; ++round) {
    pool.parallel_for(plain.size(), 7, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) plain[i] += i;
    });
    const std::size_t sum = std::accumulate(plain.begin(), plain.end(), std::size_t{0});
    ASSERT_EQ(sum, round * 999 * 1000 / 2);
  }
}

TEST(ThreadPoolTest, ThreadNumbersAreExclusiveWhileAJobRuns) {
  ThreadPool pool(4);
  std::vector<int> inside(4);  // each slot belongs to one thread at a time, so plain ints do
  for (int round = 0; round < 100; ++round) {
    pool.parallel_for(64, 1, [&](std::size_t, std::size_t, int thread) {
      inside[static_cast<std::size_t>(thread)] += 1;
      EXPECT_EQ(inside[static_cast<std::size_t>(thread)], 1);
      inside[static_cast<std::size_t>(thread)] -= 1;
    });
  }
}

// Two items that wait for each other end only if two threads hold them at once.
TEST(ThreadPoolTest, RangesRunAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.parallel_for(2, 1, [&](std::size_t, std::size_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

// Workers that fell asleep between jobs are woken, and ones that come late find the job closed.
TEST(ThreadPoolTest, JobsAfterAPauseAreNotLost) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<std::size_t> done{0};
    pool.parallel_for(30, 1, [&](std::size_t, std::size_t, int) { done.fetch_add(1); });
    EXPECT_EQ(done.load(), 30u);
    // Long enough for the workers to give up spinning; nothing depends on it but what the next round exercises.
    for (int spin = 0; spin < 20'000; ++spin) std::this_thread::yield();
  }
}

TEST(ThreadPoolTest, JobsOfSeveralCallersRunOneAfterAnother) {
  ThreadPool pool(3);
  std::atomic<int> items{0};
  std::atomic<int> overlaps{0};
  std::vector<std::thread> callers;
  std::vector<std::atomic<int>> in_job(4);
  for (std::size_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 100; ++round) {
        pool.parallel_for(8, 1, [&](std::size_t, std::size_t, int) {
          in_job[caller].fetch_add(1);
          for (std::size_t other = 0; other < 4; ++other) {
            if (other != caller && in_job[other].load() > 0) overlaps.fetch_add(1);
          }
          items.fetch_add(1);
          in_job[caller].fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(items.load(), 4 * 100 * 8);
  EXPECT_EQ(overlaps.load(), 0);
}

TEST(ThreadPoolTest, StartsAndStopsWithoutAJob) {
  for (int round = 0; round < 50; ++round) ThreadPool pool(4);
}

TEST(ThreadPoolTest, SizeCountsTheCaller) {
  EXPECT_EQ(ThreadPool(1).size(), 1);
  EXPECT_EQ(ThreadPool(5).size(), 5);
  EXPECT_GE(available_cpus(), 1);
}

}  // namespace
}  // namespace nmc
