// Internal to net: a non-blocking descriptor on an event loop. Tells when it is ready; reading and writing is left to
// its owner, who so needs no operation of Asio's per message and can pass descriptors along.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace nmc::net {

using LoopTime = std::chrono::steady_clock::time_point;
LoopTime loop_time_after(Nanos span);  // from now; saturates

// Belongs to the loop's thread. Doesn't own the descriptor, which must outlive it.
class ReadyFd {
 public:
  enum class For { kReading, kWriting };

  ReadyFd(boost::asio::io_context& loop, int fd);
  ~ReadyFd();
  ReadyFd(const ReadyFd&) = delete;
  ReadyFd& operator=(const ReadyFd&) = delete;

  // Until there is something to read, room to write or an error for the next call to tell. kDeadlineExceeded;
  // kCancelled: close() was called. One wait at a time.
  boost::asio::awaitable<Result<void>> wait(For what, LoopTime deadline);
  // Ends a wait, now and from now on.
  void close();
  bool closed() const { return closed_; }

 private:
  class Watchdog;

  boost::asio::posix::stream_descriptor descriptor_;
  std::shared_ptr<Watchdog> watchdog_;
  bool closed_ = false;
};

// Lets others on the loop have their turn.
boost::asio::awaitable<void> yield_turn();

}  // namespace nmc::net
