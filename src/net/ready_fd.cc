#include "net/ready_fd.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace nmc::net {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
}

LoopTime loop_time_after(Nanos span) {
  const LoopTime now = std::chrono::steady_clock::now();
  return span < LoopTime::max() - now ? now + span : LoopTime::max();
}

// One timer for all waits of a descriptor. It is armed anew only when it would ring too late, since most waits are over
// long before their deadline and must not pay for a timer each. Its handler keeps it alive.
class ReadyFd::Watchdog : public std::enable_shared_from_this<Watchdog> {
 public:
  Watchdog(asio::io_context& loop, asio::posix::stream_descriptor& descriptor)
      : timer_(loop), descriptor_(&descriptor) {}

  void set(LoopTime deadline) {
    deadline_ = deadline;
    if (deadline_ < rings_) arm();
  }
  void clear() { deadline_ = LoopTime::max(); }
  void stop() {
    descriptor_ = nullptr;
    timer_.cancel();
  }

 private:
  void arm() {
    rings_ = deadline_;
    timer_.expires_at(deadline_);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->ring();
    });
  }

  void ring() {
    rings_ = LoopTime::max();
    if (descriptor_ == nullptr || deadline_ == LoopTime::max()) return;
    if (std::chrono::steady_clock::now() < deadline_) return arm();
    error_code ignored;
    descriptor_->cancel(ignored);  // the wait ends with operation_aborted
  }

  asio::steady_timer timer_;
  asio::posix::stream_descriptor* descriptor_;  // nullptr once stopped
  LoopTime deadline_ = LoopTime::max();         // of the present wait
  LoopTime rings_ = LoopTime::max();            // max: not armed
};

ReadyFd::ReadyFd(asio::io_context& loop, int fd)
    : descriptor_(loop), watchdog_(std::make_shared<Watchdog>(loop, descriptor_)) {
  error_code error;  // the kernel has no room for one more: as good as closed
  descriptor_.assign(fd, error);
  if (error) close();
}

ReadyFd::~ReadyFd() {
  close();
  if (descriptor_.is_open()) descriptor_.release();
}

void ReadyFd::close() {
  if (std::exchange(closed_, true)) return;
  watchdog_->stop();
  error_code ignored;
  descriptor_.cancel(ignored);
}

asio::awaitable<Result<void>> ReadyFd::wait(For what, LoopTime deadline) {
  if (closed_) co_return cancelled("closed");
  watchdog_->set(deadline);
  const auto type =
      what == For::kReading ? asio::posix::descriptor_base::wait_read : asio::posix::descriptor_base::wait_write;
  auto [error] = co_await descriptor_.async_wait(type, kAwait);
  watchdog_->clear();
  if (closed_) co_return cancelled("closed");
  if (error) co_return deadline_exceeded("the peer moved no byte before its deadline");
  co_return Result<void>();
}

asio::awaitable<void> yield_turn() { co_await asio::post(asio::use_awaitable); }

}  // namespace nmc::net
