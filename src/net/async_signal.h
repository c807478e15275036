// A condition that coroutines of event loops wait for and any thread signals.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace nmc::net {

// Thread-safe. Read epoch(), then look at what is waited for, then wait(): a notify() in between isn't missed. Loops
// are those of one thread each; one may end at any time, with coroutines that wait here, as long as the signal lives.
class AsyncSignal {
 public:
  std::uint64_t epoch() const {
    MutexLock lock(mutex_);
    return epoch_;
  }

  void notify() {
    // Under the lock throughout: a timer in the list has a coroutine, hence a loop, that is not gone yet.
    MutexLock lock(mutex_);
    ++epoch_;
    for (const std::shared_ptr<Timer>& timer : waiting_)
      boost::asio::post(timer->get_executor(), [timer] { timer->cancel(); });
    waiting_.clear();
  }

  // Until notify() was called after `seen` was read, at most for `at_most`.
  boost::asio::awaitable<void> wait(std::uint64_t seen, Nanos at_most) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const Entry entry{*this, std::make_shared<Timer>(executor, at_most)};
    if (!enter(entry.timer, seen)) co_return;
    boost::system::error_code ignored;
    co_await entry.timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }

 private:
  using Timer = boost::asio::steady_timer;

  // Of a coroutine that waits. A loop that ends destroys its coroutines where they are: the list forgets them first.
  struct Entry {
    AsyncSignal& signal;
    std::shared_ptr<Timer> timer;
    ~Entry() {
      MutexLock lock(signal.mutex_);
      std::erase(signal.waiting_, timer);
    }
  };

  bool enter(const std::shared_ptr<Timer>& timer, std::uint64_t seen) {
    MutexLock lock(mutex_);
    if (epoch_ != seen) return false;
    waiting_.push_back(timer);
    return true;
  }

  mutable Mutex mutex_;
  std::uint64_t epoch_ NMC_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Timer>> waiting_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::net
