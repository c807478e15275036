// Internal to net: the answer of one request, between whoever produces it and the connection that sends it. Knows HTTP
// framing, no sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "net/http_server.h"

namespace nmc::net {

// The connection as its exchange sees it. The calls are thread-safe and return at once.
class HttpExchangeHost {
 public:
  virtual ~HttpExchangeHost() = default;
  virtual void post(std::function<void()> task) = 0;
  virtual void wake() = 0;     // there is something to pull()
  virtual void cut_off() = 0;  // without a proper end, whatever it waits for
};

// How the request wants its answer framed.
struct HttpFraming {
  bool http11 = true;      // else 1.0: a stream ends with its connection
  bool head_only = false;  // HEAD: no body
  bool keep_alive = true;  // the client would send another request
};

// Thread-safe. Attached to its host from construction to detach(); afterwards the producer's calls do nothing.
class HttpExchangeState {
 public:
  HttpExchangeState(std::shared_ptr<const HttpServerOptions> options, HttpFraming framing,
                    std::shared_ptr<HttpExchangeHost> host);

  // The producer's side: see HttpExchange.
  void respond(HttpResponse response);
  void begin_stream(HttpStreamHead head);
  void write(std::string_view bytes);
  void finish(HttpExchange::After after);
  void post(std::function<void()> task);
  void on_closed(std::function<void()> callback);
  void abandon();  // nobody will complete it any more

  // The connection's side.
  enum class Pull { kBytes, kNothingYet, kComplete, kOverrun };
  Pull pull(std::string& bytes);  // replaces `bytes` by all that is to be sent
  void sent(std::size_t bytes);   // so many of those have left
  void blocked(bool blocked);     // the kernel takes no more of them now
  void heartbeat();               // the stream was silent for heartbeat_interval
  bool complete() const;          // the producer is done
  bool keep_alive() const;        // the connection can serve another request afterwards
  void announce_close();          // the connection will not serve another request
  void detach();                  // calls on_closed unless complete

 private:
  void append_locked(std::string_view bytes) NMC_REQUIRES(mutex_);
  void cut_off_locked() NMC_REQUIRES(mutex_);
  void respond_locked(const HttpResponse& response) NMC_REQUIRES(mutex_);
  void end_locked(HttpExchange::After after) NMC_REQUIRES(mutex_);

  enum class Stage { kNoHead, kStreaming, kComplete };

  const std::shared_ptr<const HttpServerOptions> options_;
  const HttpFraming framing_;

  mutable Mutex mutex_;
  std::shared_ptr<HttpExchangeHost> host_ NMC_GUARDED_BY(mutex_);  // nullptr once detached
  Stage stage_ NMC_GUARDED_BY(mutex_) = Stage::kNoHead;
  bool keep_alive_ NMC_GUARDED_BY(mutex_);
  bool blocked_ NMC_GUARDED_BY(mutex_) = false;
  bool overrun_ NMC_GUARDED_BY(mutex_) = false;
  bool lost_ NMC_GUARDED_BY(mutex_) = false;          // detached before complete
  std::string queued_ NMC_GUARDED_BY(mutex_);         // not pulled yet
  std::size_t in_flight_ NMC_GUARDED_BY(mutex_) = 0;  // pulled, not sent
  std::string heartbeat_ NMC_GUARDED_BY(mutex_);
  std::function<void()> on_closed_ NMC_GUARDED_BY(mutex_);
};

// What a handler gets: abandons the state with its last reference.
std::shared_ptr<HttpExchange> make_http_exchange(std::shared_ptr<HttpExchangeState> state);

// An answer of the server's own.
HttpResponse render_http_error(const HttpServerOptions& options, int status, std::string_view message);
// A whole response as bytes. `keep_alive` and `framing` decide the Connection header and whether the body is sent.
std::string format_http_response(const HttpResponse& response, HttpFraming framing, bool keep_alive);

}  // namespace nmc::net
