#include "lab/request_queue.h"

#include <utility>

#include "base/check.h"

namespace nmc::lab {

RequestQueue::RequestQueue(std::size_t count, std::size_t ahead, std::function<std::string(std::size_t)> build)
    : count_(count), ahead_(ahead), build_(std::move(build)), thread_([this] { run(); }) {}

RequestQueue::~RequestQueue() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void RequestQueue::run() {
  for (std::size_t index = 0; index < count_; ++index) {
    {
      MutexLock lock(mutex_);
      while (!ended_ && is_full_locked()) changed_.wait(mutex_);
      if (ended_) return;
    }
    std::string request = build_(index);
    MutexLock lock(mutex_);
    bytes_ += request.size();
    built_.push_back(std::move(request));
    next_ = index + 1;
    changed_.notify_all();
  }
}

void RequestQueue::wait_filled() {
  MutexLock lock(mutex_);
  while (next_ < count_ && !is_full_locked()) changed_.wait(mutex_);
}

std::string RequestQueue::take() {
  MutexLock lock(mutex_);
  while (built_.empty()) {
    NMC_REQUIRE(next_ < count_, "all {} were taken", count_);
    changed_.wait(mutex_);
  }
  std::string request = std::move(built_.front());
  built_.pop_front();
  bytes_ -= request.size();
  changed_.notify_all();
  return request;
}

}  // namespace nmc::lab
