#include "http/task_thread.h"

#include <utility>

namespace nmc::http {

TaskThread::TaskThread(std::size_t queue_max) : queue_max_(queue_max), thread_([this] { run(); }) {}

TaskThread::~TaskThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

bool TaskThread::post(std::function<void()> task) {
  MutexLock lock(mutex_);
  if (queue_.size() == queue_max_) return false;
  queue_.push_back(std::move(task));
  changed_.notify_one();
  return true;
}

void TaskThread::run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      if (stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace nmc::http
