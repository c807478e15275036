// An HTTP/1 server for many long answers: a few I/O threads carry thousands of idle streams, and whoever produces an
// answer hears when its client has gone away.
//
// A request is read whole (within limits), then handed to the handler together with an HttpExchange, through which it
// is answered now or later, from any thread, whole or as a stream. Requests of one connection are served one after
// another; what a client sends ahead waits. A client that closes (or half-closes) its side before its answer is
// complete has given up: the exchange's on_closed is called and what is written afterwards is dropped.
//
// Every wait and every buffer is bounded by HttpServerOptions. What exceeds a bound is answered with the fitting status
// (400, 408, 413, 417, 431, 503, 505) and the connection is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/http.h"

namespace nmc::net {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // a numeric address or a name; "" is not allowed
  std::uint16_t port = 0;          // 0: any free one
  int io_threads = 2;
  std::size_t max_connections = 4096;       // one more gets 503 with Retry-After and is closed
  std::size_t max_header_bytes = 64 << 10;  // request line and headers together; more: 431
  std::size_t max_body_bytes = 8 << 20;     // more, declared or sent: 413, without reading it
  std::size_t max_unsent_bytes = 1 << 20;   // of a stream, beyond the kernel's buffers; more: the reader is cut off
  std::size_t max_ahead_bytes = 64 << 10;   // read while an answer is pending (pipelined requests); then reading pauses
  Nanos idle_timeout = std::chrono::seconds(75);  // between two requests
  Nanos header_timeout =
      std::chrono::seconds(15);                    // from a connection's start or a request's first byte to its headers
  Nanos body_timeout = std::chrono::seconds(60);   // for the whole body
  Nanos write_timeout = std::chrono::seconds(30);  // without any progress of a write, or without an acknowledgement
  Nanos heartbeat_interval = std::chrono::seconds(15);  // see HttpStreamHead::heartbeat

  // Body and headers of the answers that the server gives by itself. Default: the message as plain text.
  std::function<HttpResponse(int status, std::string_view message)> render_error;
};

struct HttpStreamHead {
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<HttpHeader> headers;
  std::string
      heartbeat;  // written whenever the stream was silent for heartbeat_interval, so that dead clients show; "": none
};

// One request's answer. Thread-safe. Outlives server and connection safely: calls after the client went away, after the
// answer was complete or after the server was destroyed do nothing. When the last reference goes before the answer was
// complete, the client gets 500, or its stream is cut off.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // The whole answer.
  virtual void respond(HttpResponse response) = 0;

  // The same in parts: head, bytes, end. Bytes are sent as soon as the socket takes them. A reader that leaves more
  // than max_unsent_bytes unread, once the kernel's buffers are full, is disconnected. Whoever writes much in one go
  // may exceed that for a reader that keeps up.
  virtual void begin_stream(HttpStreamHead head) = 0;
  virtual void write(std::string_view bytes) = 0;
  enum class After { kKeepAlive, kClose };
  virtual void finish(After after = After::kKeepAlive) = 0;

  // Runs `task` soon on an I/O thread, never together with another task, the handler or on_closed of the same
  // connection. Dropped if the exchange is over by then. Must not block.
  virtual void post(std::function<void()> task) = 0;

  // `callback` runs at most once, on an I/O thread as post() has it: when the client has gone away before the answer
  // was complete. At once (on this thread) if that is so already. Set it once.
  virtual void on_closed(std::function<void()> callback) = 0;
};

struct HttpServerStats {
  std::size_t connections = 0;     // open now
  std::size_t exchanges = 0;       // requests whose answer isn't fully written
  std::uint64_t requests = 0;      // since start: handed to the handler
  std::uint64_t refused = 0;       // connections beyond max_connections
  std::uint64_t clients_lost = 0;  // answers that had no reader any more
};

// Thread-safe.
class HttpServer {
 public:
  // Called on an I/O thread; must not block for long.
  using Handler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;

  // Serves as soon as it returns. kAlreadyExists: the port is taken; the message names address and port.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, Handler handler);
  // Cuts off what is still open (on_closed is called) and joins the threads. `handler` isn't called afterwards.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  const std::string& url() const;  // "http://127.0.0.1:8000"

  // Takes no more connections and no more requests on open ones; pending answers go on, then their connections close.
  void stop_accepting();
  // True when no answer is pending, at most after `timeout`.
  bool wait_idle(Nanos timeout);
  HttpServerStats stats() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nmc::net
