// Internal to the load generator: connections that are open before they are needed, so that sending doesn't wait for a
// server to accept.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "lab/api_endpoint.h"
#include "lab/load_exchange.h"

namespace nmc::lab {

// Thread-safe.
class ConnectionPool {
 public:
  // `stream`, or why there is none. On a dialler's thread.
  using Served = std::function<void(ExchangePtr exchange, Result<net::TcpStream> stream)>;

  // Keeps `ahead` connections open and idle from now on, by a few threads that dial.
  ConnectionPool(ApiEndpoint endpoint, std::size_t ahead, Served on_served);
  ~ConnectionPool() { stop(); }
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // Ends the diallers; exchanges that still wait are handed to `on_served` with kCancelled. Nothing is served any more.
  void stop();

  // Waits until they are open; the error of the first that could not be.
  Result<void> wait_filled(const std::function<bool()>& should_stop);

  // One that is open; nothing if none is. Never waits.
  std::optional<net::TcpStream> take();
  // For an exchange that found none: served as soon as one is open, in order, or with why there is none.
  void serve_later(ExchangePtr exchange);
  // After an answer that leaves it open.
  void give_back(net::TcpStream stream);

 private:
  struct Idle {
    net::TcpStream stream;
    Nanos since;
  };
  void dial();
  void drop_old_locked() NMC_REQUIRES(mutex_);

  const ApiEndpoint endpoint_;
  const std::size_t ahead_;
  const Served on_served_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Idle> idle_ NMC_GUARDED_BY(mutex_);  // newest last
  std::deque<ExchangePtr> waiting_ NMC_GUARDED_BY(mutex_);
  std::size_t dialling_ NMC_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failed_ NMC_GUARDED_BY(mutex_);  // the last attempt did
  bool ended_ NMC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> diallers_;
};

}  // namespace nmc::lab
