#include "net/http_connection.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <tuple>
#include <utility>

#include "net/http_exchange.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;
using SteadyTime = std::chrono::steady_clock::time_point;

// Errors as values: a closed socket is no exception here.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 4096;
// How long a closing connection still reads what its client is sending: closing a socket with unread input resets it,
// and the reset can overtake our last answer.
constexpr auto kLingerTime = std::chrono::seconds(2);

// A body that grows with what arrives. (Beast's own string_body reserves what Content-Length declares.)
struct GrowingBody {
  using value_type = std::string;
  class Reader {
   public:
    template <bool kIsRequest, class Fields>
    Reader(beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, error_code& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer piece(*it);
        body_.append(static_cast<const char*>(piece.data()), piece.size());
      }
      return asio::buffer_size(buffers);
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
  using reader = Reader;  // Beast asks for these names
};
using Parser = beast::http::request_parser<GrowingBody>;
using Field = beast::http::field;

std::string_view to_std(boost::core::string_view text) { return {text.data(), text.size()}; }

HttpRequest take_request(Parser& parser) {
  auto message = parser.release();
  HttpRequest request;
  request.method = to_std(message.method_string());
  request.target = to_std(message.target());
  HttpTarget parts = split_http_target(request.target);
  request.path = std::move(parts.path);
  request.query = std::move(parts.query);
  for (const auto& field : message) {
    request.headers.push_back({std::string(to_std(field.name_string())), std::string(to_std(field.value()))});
  }
  request.body = std::move(message.body());
  return request;
}

struct Refusal {
  int status;
  std::string message;
};

// What to tell a client whose bytes could not be read as a request; status 0: nothing, it is gone.
Refusal refusal_of(error_code error, const HttpServerOptions& options) {
  using Http = beast::http::error;
  if (error.category() != make_error_code(Http::bad_method).category()) return {0, ""};
  if (error == Http::end_of_stream || error == Http::partial_message) return {0, ""};
  if (error == Http::body_limit) {
    return {413, fmt::format("request body is larger than {} bytes", options.max_body_bytes)};
  }
  if (error == Http::header_limit || error == Http::buffer_overflow) {
    return {431, fmt::format("request headers are larger than {} bytes", options.max_header_bytes)};
  }
  if (error == Http::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  return {400, fmt::format("malformed HTTP request: {}", error.message())};
}

class Connection final : public HttpConnection,
                         public HttpExchangeHost,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServerCore& core, tcp::socket socket)
      : core_(core),
        options_(core.options),
        socket_(std::move(socket)),
        wake_(socket_.get_executor()),
        watchdog_(socket_.get_executor()),
        // Room for a header at its limit that arrives together with a piece of the body.
        buffer_(options_->max_header_bytes + options_->max_ahead_bytes + kReadBytes) {
    error_code ignored;
    socket_.non_blocking(true, ignored);  // for send()
  }

  void start() override { run(&Connection::serve); }
  void refuse() override { run(&Connection::send_refusal); }
  void close() override {
    post([this] { close_now(); });
  }
  void close_if_idle() override {
    post([this] {
      if (idle_) close_now();
    });
  }

  // HttpExchangeHost
  void post(std::function<void()> task) override {
    asio::post(socket_.get_executor(), [self = shared_from_this(), run = std::move(task)] { run(); });
  }
  void cut_off() override { close(); }
  void wake() override {
    if (wake_pending_.exchange(true, std::memory_order_acq_rel)) return;
    post([this] {
      // Before the timer: whoever adds bytes after this posts again.
      wake_pending_.store(false, std::memory_order_release);
      wake_.cancel();
    });
  }

 private:
  using Work = asio::awaitable<void> (Connection::*)();

  void run(Work work) {
    asio::co_spawn(
        socket_.get_executor(),
        [](std::shared_ptr<Connection> self, Work todo) -> asio::awaitable<void> {
          co_await (self.get()->*todo)();
          self->close_now();
          self->clear_deadline();
          self->watchdog_.cancel();
          self->core_.table.remove(self.get());
        }(shared_from_this(), work),
        asio::detached);
  }

  // One timer a connection, re-armed only when it would ring too late: a stream of tokens moves its deadline with each
  // write and must not pay for a timer each.
  void set_deadline(Nanos within) {
    deadline_ = std::chrono::steady_clock::now() + within;
    if (watchdog_rings_ > deadline_) arm_watchdog();
  }
  void clear_deadline() { deadline_ = SteadyTime::max(); }

  void arm_watchdog() {
    watchdog_rings_ = deadline_;
    watchdog_.expires_at(deadline_);
    watchdog_.async_wait([this, self = shared_from_this()](error_code error) {
      if (error) return;  // moved or cancelled
      watchdog_rings_ = SteadyTime::max();
      if (std::chrono::steady_clock::now() >= deadline_) {
        on_deadline();
      } else if (deadline_ != SteadyTime::max()) {
        arm_watchdog();
      }
    });
  }

  void on_deadline() {
    clear_deadline();
    timed_out_ = true;
    error_code ignored;
    socket_.cancel(ignored);  // what waits ends with operation_aborted
    wake_.cancel();
  }

  void close_now() {
    closed_ = true;
    error_code ignored;
    socket_.close(ignored);
    wake_.cancel();
  }

  // What the kernel still holds for a reader that was cut off goes, too: it would keep offering it for minutes.
  void reset_on_close() {
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }

  asio::awaitable<void> serve() {
    bool more = true;
    while (more && !closed_ && !core_.stopping.load(std::memory_order_relaxed)) more = co_await serve_one();
  }

  // One request and its answer. True: the connection can serve another.
  asio::awaitable<bool> serve_one() {
    if (!co_await first_byte()) co_return false;
    set_deadline(options_->header_timeout);
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(options_->max_header_bytes));
    parser.body_limit(options_->max_body_bytes);
    auto [error, bytes] = co_await beast::http::async_read_header(socket_, buffer_, parser, kAwait);
    if (!error) error = co_await read_body(parser);
    clear_deadline();
    if (error) {
      co_await refuse_request(error);
      co_return false;
    }
    co_return co_await answer(parser);
  }

  // Waits for a request to begin.
  asio::awaitable<bool> first_byte() {
    idle_ = true;
    set_deadline(served_ == 0 ? options_->header_timeout : options_->idle_timeout);
    while (buffer_.size() == 0) {
      auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
      if (error || closed_) co_return false;
      buffer_.commit(bytes);
    }
    idle_ = false;
    co_return true;
  }

  asio::awaitable<error_code> read_body(Parser& parser) {
    if (parser.is_done()) co_return error_code();
    set_deadline(options_->body_timeout);
    const auto expect = parser.get().find(Field::expect);
    if (expect != parser.get().end() && parser.get().version() >= 11) {
      if (!equals_ignoring_case(to_std(expect->value()), "100-continue")) {
        const Refusal refusal{417, "only `Expect: 100-continue` is understood"};
        co_await send_and_linger(refusal);
        co_return asio::error::make_error_code(asio::error::operation_aborted);
      }
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      auto [error, bytes] = co_await asio::async_write(socket_, asio::buffer(kContinue), kAwait);
      if (error) co_return error;
    }
    auto [error, bytes] = co_await beast::http::async_read(socket_, buffer_, parser, kAwait);
    co_return error;
  }

  asio::awaitable<void> refuse_request(error_code error) {
    if (closed_) co_return;
    const Refusal refusal =
        timed_out_ ? Refusal{408, "the request did not arrive in time"} : refusal_of(error, *options_);
    if (refusal.status != 0) co_await send_and_linger(refusal);
  }

  asio::awaitable<void> send_refusal() {
    const Refusal refusal{503, fmt::format("all {} connections are taken", options_->max_connections)};
    co_await send_and_linger(refusal);
  }

  asio::awaitable<void> send_and_linger(const Refusal& refusal) {
    HttpResponse response = render_http_error(*options_, refusal.status, refusal.message);
    if (refusal.status == 503) response.headers.push_back({"Retry-After", "1"});
    const std::string bytes = format_http_response(response, {}, false);
    timed_out_ = false;
    set_deadline(kLingerTime);
    auto [error, written] = co_await asio::async_write(socket_, asio::buffer(bytes), kAwait);
    if (!error) co_await linger();
  }

  asio::awaitable<void> linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    while (!closed_ && !timed_out_) {
      auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
      if (error) break;
    }
  }

  // Hands the request to the handler and sends what the exchange gets to hold. True: the connection can serve another.
  asio::awaitable<bool> answer(Parser& parser) {
    const HttpFraming framing{.http11 = parser.get().version() >= 11,
                              .head_only = parser.get().method() == beast::http::verb::head,
                              .keep_alive = parser.get().keep_alive()};
    const auto exchange = std::make_shared<HttpExchangeState>(options_, framing, shared_from_this());
    if (core_.stopping.load(std::memory_order_relaxed)) exchange->announce_close();
    ++served_;
    core_.table.exchange_began();
    core_.handler(take_request(parser), make_http_exchange(exchange));

    using asio::experimental::awaitable_operators::operator||;
    flushed_ = false;
    client_gone_ = false;
    co_await (watch_client(*exchange) || send_answer(*exchange));
    clear_deadline();
    exchange->detach();
    core_.table.exchange_ended(!flushed_);
    if (!flushed_) reset_on_close();
    if (flushed_ && !exchange->keep_alive()) {
      set_deadline(kLingerTime);
      co_await linger();
    }
    co_return flushed_ && exchange->keep_alive() && !client_gone_;
  }

  // Reads on while an answer is pending, since only a read tells that the client is gone. Ends when it is; otherwise it
  // is cancelled by the end of send_answer().
  asio::awaitable<void> watch_client(const HttpExchangeState& exchange) {
    while (buffer_.size() < options_->max_ahead_bytes) {
      auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
      buffer_.commit(bytes);  // also when send_answer() is done by now: it is the next request
      // Also then, since the end of a socket's input is told only once: another read would wait for the idle timeout.
      if (error && error != asio::error::operation_aborted) client_gone_ = true;
      if (flushed_) co_return;
      if (!error) continue;
      client_gone_ = true;
      if (!exchange.complete() || timed_out_ || closed_) co_return;
      break;  // it has said all, and its answer is on the way
    }
    asio::steady_timer never(socket_.get_executor(), SteadyTime::max());
    co_await never.async_wait(kAwait);
  }

  asio::awaitable<void> send_answer(HttpExchangeState& exchange) {
    std::string bytes;
    while (!closed_ && !timed_out_) {
      switch (exchange.pull(bytes)) {
        case HttpExchangeState::Pull::kComplete: flushed_ = true; co_return;
        case HttpExchangeState::Pull::kOverrun: co_return;
        case HttpExchangeState::Pull::kNothingYet: co_await wait_for_bytes(exchange); break;
        case HttpExchangeState::Pull::kBytes:
          if (!co_await send(exchange, bytes)) co_return;
          break;
      }
      // The other side of || ended and asked this one to stop.
      if (client_gone_ && !exchange.complete()) co_return;
    }
  }

  asio::awaitable<void> wait_for_bytes(HttpExchangeState& exchange) {
    clear_deadline();
    wake_.expires_after(options_->heartbeat_interval);
    auto [error] = co_await wake_.async_wait(kAwait);
    if (!error) exchange.heartbeat();
  }

  // Tries before it waits: only so is it known whether the reader is behind or merely we are.
  asio::awaitable<bool> send(HttpExchangeState& exchange, std::string_view bytes) {
    while (!bytes.empty()) {
      error_code error;
      const std::size_t count = socket_.write_some(asio::buffer(bytes), error);
      if (error == asio::error::would_block) {
        exchange.blocked(true);
        set_deadline(options_->write_timeout);
        std::tie(error) = co_await socket_.async_wait(tcp::socket::wait_write, kAwait);
        exchange.blocked(false);
        if (error) co_return false;
        continue;
      }
      if (error) co_return false;
      exchange.sent(count);
      bytes.remove_prefix(count);
    }
    co_return true;
  }

  HttpServerCore& core_;
  const std::shared_ptr<const HttpServerOptions> options_;
  tcp::socket socket_;
  asio::steady_timer wake_;  // rings for a heartbeat; cancelled to tell send_answer() of new bytes
  asio::steady_timer watchdog_;
  SteadyTime deadline_ = SteadyTime::max();        // of what is being waited for
  SteadyTime watchdog_rings_ = SteadyTime::max();  // max: not armed
  beast::flat_buffer buffer_;                      // read, not parsed
  std::atomic<bool> wake_pending_{false};
  std::size_t served_ = 0;
  bool idle_ = false;  // between requests
  bool timed_out_ = false;
  bool closed_ = false;       // by us
  bool flushed_ = false;      // the present answer is with the kernel
  bool client_gone_ = false;  // it sends nothing more
};

}  // namespace

std::shared_ptr<HttpConnection> HttpConnection::create(HttpServerCore& core, tcp::socket socket) {
  return std::make_shared<Connection>(core, std::move(socket));
}

HttpConnectionTable::Admission HttpConnectionTable::add(const std::shared_ptr<HttpConnection>& connection,
                                                        std::size_t max) {
  MutexLock lock(mutex_);
  const bool serve = open_.size() - refusing_ < max;
  if (!serve) {
    ++stats_.refused;
    if (refusing_ == kMaxRefusing) return Admission::kDrop;
    ++refusing_;
  }
  open_.emplace(connection.get(), Entry{connection, !serve});
  return serve ? Admission::kServe : Admission::kRefuse;
}

void HttpConnectionTable::remove(const HttpConnection* connection) {
  MutexLock lock(mutex_);
  const auto it = open_.find(connection);
  if (it->second.refusing) --refusing_;
  open_.erase(it);
}

std::vector<std::shared_ptr<HttpConnection>> HttpConnectionTable::all() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<HttpConnection>> connections;
  for (const auto& [key, entry] : open_) {
    if (auto connection = entry.connection.lock()) connections.push_back(std::move(connection));
  }
  return connections;
}

void HttpConnectionTable::exchange_began() {
  MutexLock lock(mutex_);
  ++stats_.exchanges;
  ++stats_.requests;
}

void HttpConnectionTable::exchange_ended(bool client_lost) {
  MutexLock lock(mutex_);
  --stats_.exchanges;
  if (client_lost) ++stats_.clients_lost;
  if (stats_.exchanges == 0) idle_.notify_all();
}

bool HttpConnectionTable::wait_idle(Nanos timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (stats_.exchanges != 0) {
    if (!idle_.wait_until(mutex_, deadline)) return stats_.exchanges == 0;
  }
  return true;
}

HttpServerStats HttpConnectionTable::stats() const {
  MutexLock lock(mutex_);
  HttpServerStats stats = stats_;
  stats.connections = open_.size() - refusing_;
  return stats;
}

}  // namespace nmc::net
