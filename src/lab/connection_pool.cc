#include "lab/connection_pool.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace nmc::lab {
namespace {

constexpr std::size_t kDiallers = 4;  // while one waits for a far server, others do, too
constexpr Nanos kDialTimeout = std::chrono::seconds(10);
// Servers close connections that are idle for long; ours are replaced before.
constexpr Nanos kIdleMax = std::chrono::seconds(10);
constexpr Nanos kRetryAfter = std::chrono::milliseconds(50);
constexpr Nanos kLook = std::chrono::milliseconds(20);

// Nobody has sent anything on an idle connection: if there is something to read, it is its end. Only TLS may have said
// something of its own.
bool is_open(const net::TcpStream& stream, bool tls) {
  char byte = 0;
  const ssize_t got = ::recv(stream.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return tls;
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

ConnectionPool::ConnectionPool(ApiEndpoint endpoint, std::size_t ahead, Served on_served)
    : endpoint_(std::move(endpoint)), ahead_(ahead), on_served_(std::move(on_served)) {
  for (std::size_t i = 0; i < kDiallers; ++i) diallers_.emplace_back([this] { dial(); });
}

void ConnectionPool::stop() {
  std::deque<ExchangePtr> waiting;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    waiting = std::exchange(waiting_, {});
    changed_.notify_all();
  }
  for (auto& dialler : std::exchange(diallers_, {})) dialler.join();
  for (ExchangePtr& exchange : waiting) on_served_(std::move(exchange), cancelled("the run was interrupted"));
}

void ConnectionPool::drop_old_locked() {
  const Nanos now = real_clock().now();
  while (!idle_.empty() && now - idle_.front().since > kIdleMax) idle_.pop_front();
}

void ConnectionPool::dial() {
  MutexLock lock(mutex_);
  while (!ended_) {
    drop_old_locked();
    if (idle_.size() + dialling_ >= ahead_ + waiting_.size()) {
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kIdleMax / 10);
      continue;
    }
    ++dialling_;
    mutex_.unlock();
    auto stream = endpoint_.connect(real_clock().now() + kDialTimeout);
    mutex_.lock();
    --dialling_;
    failed_ = stream ? std::nullopt : std::optional(stream.error());
    changed_.notify_all();
    const bool failed = !stream.has_value();
    if (!waiting_.empty()) {
      ExchangePtr exchange = std::move(waiting_.front());
      waiting_.pop_front();
      mutex_.unlock();
      on_served_(std::move(exchange), std::move(stream));
      mutex_.lock();
    } else if (!failed) {
      idle_.push_back({std::move(*stream), real_clock().now()});
    }
    // A server that refuses isn't asked over and over while nobody waits.
    if (failed && !ended_ && waiting_.empty())
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kRetryAfter);
  }
}

Result<void> ConnectionPool::wait_filled(const std::function<bool()>& should_stop) {
  MutexLock lock(mutex_);
  while (idle_.size() < ahead_) {
    if (failed_) return Failure(*failed_);
    if (should_stop && should_stop()) return cancelled("stopped");
    changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kLook);
  }
  return {};
}

std::optional<net::TcpStream> ConnectionPool::take() {
  MutexLock lock(mutex_);
  drop_old_locked();
  while (!idle_.empty()) {
    net::TcpStream stream = std::move(idle_.back().stream);
    idle_.pop_back();
    if (!is_open(stream, endpoint_.tls)) continue;
    changed_.notify_one();
    return stream;
  }
  return std::nullopt;
}

void ConnectionPool::serve_later(ExchangePtr exchange) {
  MutexLock lock(mutex_);
  waiting_.push_back(std::move(exchange));
  changed_.notify_one();
}

void ConnectionPool::give_back(net::TcpStream stream) {
  MutexLock lock(mutex_);
  if (ended_ || idle_.size() >= 2 * ahead_) return;
  idle_.push_back({std::move(stream), real_clock().now()});
}

}  // namespace nmc::lab
