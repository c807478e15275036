#include "http/task_thread.h"

#include <gtest/gtest.h>

#include <future>

namespace nmc::http {
namespace {

TEST(TaskThread, RunsTasksInOrder) {
  std::string order;
  std::promise<void> last;
  TaskThread thread(10);  // ends first: its tasks use the others
  for (const char c : {'a', 'b', 'c'}) EXPECT_TRUE(thread.post([&order, c] { order += c; }));
  EXPECT_TRUE(thread.post([&last] { last.set_value(); }));
  last.get_future().wait();
  EXPECT_EQ(order, "abc");
}

TEST(TaskThread, RefusesWhatDoesntFitItsQueue) {
  std::promise<void> running, release;
  TaskThread thread(2);
  EXPECT_TRUE(thread.post([&] {
    running.set_value();
    release.get_future().wait();
  }));
  running.get_future().wait();  // it waits no more: the queue is empty
  EXPECT_TRUE(thread.post([] {}));
  EXPECT_TRUE(thread.post([] {}));
  EXPECT_FALSE(thread.post([] { FAIL() << "was refused"; }));
  release.set_value();
}

TEST(TaskThread, DropsWhatHasNotBegunWhenItGoes) {
  std::promise<void> running, release;
  const auto held = std::make_shared<int>(1);
  {
    TaskThread thread(2);
    thread.post([&] {
      running.set_value();
      release.get_future().wait();
    });
    running.get_future().wait();
    thread.post([held] {});
    release.set_value();
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace nmc::http
