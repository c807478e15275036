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
// are those of one thread each, and outlive what waits on them.
class AsyncSignal {
 public:
  std::uint64_t epoch() const {
    MutexLock lock(mutex_);
    return epoch_;
  }

  void notify() {
    std::vector<std::shared_ptr<Timer>> waiting;
    {
      MutexLock lock(mutex_);
      ++epoch_;
      waiting.swap(waiting_);
    }
    for (const std::shared_ptr<Timer>& timer : waiting)
      boost::asio::post(timer->get_executor(), [timer] { timer->cancel(); });
  }

  // Until notify() was called after `seen` was read, at most for `at_most`.
  boost::asio::awaitable<void> wait(std::uint64_t seen, Nanos at_most) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const auto timer = std::make_shared<Timer>(executor, at_most);
    {
      MutexLock lock(mutex_);
      if (epoch_ != seen) co_return;
      waiting_.push_back(timer);
    }
    boost::system::error_code ignored;
    co_await timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    MutexLock lock(mutex_);
    std::erase(waiting_, timer);
  }

 private:
  using Timer = boost::asio::steady_timer;
  mutable Mutex mutex_;
  std::uint64_t epoch_ NMC_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Timer>> waiting_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::net
