// Internal to net: one accepted socket and the requests on it. Only http_server.cc and http_connection.cc include this,
// since it brings Asio along.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "net/http_server.h"

namespace nmc::net {

class HttpConnection;

// What is open and what was counted. Thread-safe.
class HttpConnectionTable {
 public:
  // Beyond `max` connections a few more get a refusal; the rest is dropped without one.
  enum class Admission { kServe, kRefuse, kDrop };
  Admission add(const std::shared_ptr<HttpConnection>& connection, std::size_t max);
  void remove(const HttpConnection* connection);
  std::vector<std::shared_ptr<HttpConnection>> all() const;

  void exchange_began();
  void exchange_ended(bool client_lost);
  bool wait_idle(Nanos timeout);
  HttpServerStats stats() const;

 private:
  static constexpr std::size_t kMaxRefusing = 64;
  struct Entry {
    std::weak_ptr<HttpConnection> connection;
    bool refusing;
  };

  mutable Mutex mutex_;
  CondVar idle_;
  std::unordered_map<const HttpConnection*, Entry> open_ NMC_GUARDED_BY(mutex_);
  std::size_t refusing_ NMC_GUARDED_BY(mutex_) = 0;
  HttpServerStats stats_ NMC_GUARDED_BY(mutex_);
};

// What all connections of a server share. Outlives them: the server destroys it after its loop ran dry.
struct HttpServerCore {
  std::shared_ptr<const HttpServerOptions> options;
  HttpServer::Handler handler;
  std::atomic<bool> stopping{false};  // no new requests
  HttpConnectionTable table;
};

// Serves one socket, whose executor is a strand. Thread-safe.
class HttpConnection {
 public:
  static std::shared_ptr<HttpConnection> create(HttpServerCore& core, boost::asio::ip::tcp::socket socket);
  virtual ~HttpConnection() = default;

  virtual void start() = 0;          // serve until either side has enough; keeps itself alive
  virtual void refuse() = 0;         // instead of start(): answer 503 and close
  virtual void close() = 0;          // now
  virtual void close_if_idle() = 0;  // between two requests: now
};

}  // namespace nmc::net
