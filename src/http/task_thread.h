// One thread for work that would hold up the I/O threads.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace nmc::http {

// Thread-safe. Runs tasks one after another; those not begun when it is destroyed are dropped.
class TaskThread {
 public:
  explicit TaskThread(std::size_t queue_max);
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // False, and `task` is dropped, when `queue_max` are waiting.
  bool post(std::function<void()> task);

 private:
  void run();

  const std::size_t queue_max_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ NMC_GUARDED_BY(mutex_);
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace nmc::http
