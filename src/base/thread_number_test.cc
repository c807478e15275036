#include "base/thread_number.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace nmc {
namespace {

TEST(ThreadNumber, StaysAThreadsOwn) {
  const std::uint32_t mine = thread_number();
  EXPECT_EQ(thread_number(), mine);
  std::uint32_t first = mine, second = mine;
  std::thread([&] { first = thread_number(), second = thread_number(); }).join();
  EXPECT_NE(first, mine);
  EXPECT_EQ(first, second);
}

TEST(ThreadNumber, NoTwoLivingThreadsShareOne) {
  constexpr int kThreads = 20;
  std::atomic<int> here{0};
  Mutex mutex;
  std::set<std::uint32_t> seen{thread_number()};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      {
        MutexLock lock(mutex);
        seen.insert(thread_number());
      }
      ++here;
      while (here.load() < kThreads) std::this_thread::yield();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(seen.size(), kThreads + 1u);
}

TEST(ThreadNumber, IsGivenAgainWhenItsThreadHasEnded) {
  std::uint32_t first = 0, second = 0;
  std::thread([&] { first = thread_number(); }).join();
  std::thread([&] { second = thread_number(); }).join();
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace nmc
