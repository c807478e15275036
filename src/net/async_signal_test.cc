#include "net/async_signal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

namespace nmc::net {
namespace {

namespace asio = boost::asio;

constexpr auto kNever = std::chrono::minutes(10);

TEST(AsyncSignal, WakesAllThatWait) {
  AsyncSignal signal;
  asio::io_context loop;
  int woken = 0;
  for (int i = 0; i < 3; ++i) {
    asio::co_spawn(
        loop,
        [&]() -> asio::awaitable<void> {
          co_await signal.wait(signal.epoch(), kNever);
          ++woken;
        },
        asio::detached);
  }
  loop.poll();
  EXPECT_EQ(woken, 0);
  std::thread([&] { signal.notify(); }).join();
  loop.run();
  EXPECT_EQ(woken, 3);
}

TEST(AsyncSignal, WhatCameBetweenTheLookAndTheWaitIsNotMissed) {
  AsyncSignal signal;
  asio::io_context loop;
  bool woken = false;
  const std::uint64_t seen = signal.epoch();
  signal.notify();
  asio::co_spawn(
      loop,
      [&]() -> asio::awaitable<void> {
        co_await signal.wait(seen, kNever);
        woken = true;
      },
      asio::detached);
  loop.run();
  EXPECT_TRUE(woken);
}

TEST(AsyncSignal, AWaitHasAnEnd) {
  AsyncSignal signal;
  asio::io_context loop;
  asio::co_spawn(
      loop, [&]() -> asio::awaitable<void> { co_await signal.wait(signal.epoch(), Nanos{1}); }, asio::detached);
  EXPECT_GT(loop.run(), 0u);
  signal.notify();  // nobody is left in the list
}

// A service ends while its worker still has something to tell.
TEST(AsyncSignal, ALoopMayEndWhileAnotherThreadSignals) {
  AsyncSignal signal;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> signals{0};
  std::thread other([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      signal.notify();
      signals.fetch_add(1, std::memory_order_relaxed);
    }
  });
  while (signals.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  for (int round = 0; round < 200; ++round) {
    asio::io_context loop;
    for (int i = 0; i < 4; ++i) {
      asio::co_spawn(
          loop,
          [&]() -> asio::awaitable<void> {
            for (;;) co_await signal.wait(signal.epoch(), kNever);
          },
          asio::detached);
    }
    loop.poll_one();
    loop.poll_one();
    loop.poll_one();
  }
  stop.store(true, std::memory_order_relaxed);
  other.join();
}

}  // namespace
}  // namespace nmc::net
