// Internal to the load generator: requests as bytes, built before they are due.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "base/mutex.h"

namespace nmc::lab {

// Thread-safe; one taker.
class RequestQueue {
 public:
  // Builds requests 0 to `count` - 1 in order, at most `ahead` or kBytesAhead beyond the one that was taken last.
  RequestQueue(std::size_t count, std::size_t ahead, std::function<std::string(std::size_t)> build);
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Until it has built as far as it may.
  void wait_filled();
  // The next one; waits where it isn't built yet.
  std::string take();

 private:
  static constexpr std::size_t kBytesAhead = 128 << 20;
  void run();
  bool is_full_locked() const NMC_REQUIRES(mutex_) {
    return !built_.empty() && (built_.size() >= ahead_ || bytes_ >= kBytesAhead);
  }

  const std::size_t count_, ahead_;
  const std::function<std::string(std::size_t)> build_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> built_ NMC_GUARDED_BY(mutex_);
  std::size_t bytes_ NMC_GUARDED_BY(mutex_) = 0;
  std::size_t next_ NMC_GUARDED_BY(mutex_) = 0;  // to be built
  bool ended_ NMC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace nmc::lab
