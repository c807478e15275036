#include "net/http_exchange.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace nmc::net {
namespace {

std::string format_head(const HttpResponse& response, HttpFraming framing, bool keep_alive,
                        std::string_view framing_header) {
  std::string head;
  const auto out = std::back_inserter(head);
  // Always 1.1, as RFC 9112 asks of a 1.1 server; what is sent to a 1.0 client stays within 1.0.
  fmt::format_to(out, "HTTP/1.1 {} {}\r\n", response.status, http_reason(response.status));
  if (!response.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  for (const HttpHeader& field : response.headers) fmt::format_to(out, "{}: {}\r\n", field.name, field.value);
  head += framing_header;
  if (!keep_alive) head += "Connection: close\r\n";
  if (keep_alive && !framing.http11) head += "Connection: keep-alive\r\n";
  head += "\r\n";
  return head;
}

class ExchangeHandle final : public HttpExchange {
 public:
  explicit ExchangeHandle(std::shared_ptr<HttpExchangeState> state) : state_(std::move(state)) {}
  ~ExchangeHandle() override { state_->abandon(); }

  void respond(HttpResponse response) override { state_->respond(std::move(response)); }
  void begin_stream(HttpStreamHead head) override { state_->begin_stream(std::move(head)); }
  void write(std::string_view bytes) override { state_->write(bytes); }
  void finish(After after) override { state_->finish(after); }
  void post(std::function<void()> task) override { state_->post(std::move(task)); }
  void on_closed(std::function<void()> callback) override { state_->on_closed(std::move(callback)); }

 private:
  std::shared_ptr<HttpExchangeState> state_;
};

}  // namespace

std::shared_ptr<HttpExchange> make_http_exchange(std::shared_ptr<HttpExchangeState> state) {
  return std::make_shared<ExchangeHandle>(std::move(state));
}

HttpResponse render_http_error(const HttpServerOptions& options, int status, std::string_view message) {
  if (options.render_error) return options.render_error(status, message);
  return {.status = status, .content_type = "text/plain; charset=utf-8", .body = fmt::format("{}\n", message)};
}

std::string format_http_response(const HttpResponse& response, HttpFraming framing, bool keep_alive) {
  std::string bytes =
      format_head(response, framing, keep_alive, fmt::format("Content-Length: {}\r\n", response.body.size()));
  if (!framing.head_only) bytes += response.body;
  return bytes;
}

HttpExchangeState::HttpExchangeState(std::shared_ptr<const HttpServerOptions> options, HttpFraming framing,
                                     std::shared_ptr<HttpExchangeHost> host)
    : options_(std::move(options)), framing_(framing), host_(std::move(host)), keep_alive_(framing.keep_alive) {}

void HttpExchangeState::append_locked(std::string_view bytes) {
  queued_ += bytes;
  host_->wake();
}

void HttpExchangeState::cut_off_locked() {
  overrun_ = true;
  if (host_ != nullptr) host_->cut_off();
}

void HttpExchangeState::respond_locked(const HttpResponse& response) {
  stage_ = Stage::kComplete;
  append_locked(format_http_response(response, framing_, keep_alive_));
}

void HttpExchangeState::end_locked(HttpExchange::After after) {
  if (after == HttpExchange::After::kClose) keep_alive_ = false;
  stage_ = Stage::kComplete;
  append_locked(framing_.http11 && !framing_.head_only ? "0\r\n\r\n" : "");
}

void HttpExchangeState::respond(HttpResponse response) {
  MutexLock lock(mutex_);
  if (host_ == nullptr || stage_ != Stage::kNoHead) return;
  respond_locked(response);
}

void HttpExchangeState::begin_stream(HttpStreamHead head) {
  MutexLock lock(mutex_);
  if (host_ == nullptr || stage_ != Stage::kNoHead) return;
  stage_ = Stage::kStreaming;
  if (!framing_.http11) keep_alive_ = false;
  heartbeat_ = std::move(head.heartbeat);
  const HttpResponse response{
      .status = head.status, .content_type = std::move(head.content_type), .headers = std::move(head.headers)};
  append_locked(format_head(response, framing_, keep_alive_, framing_.http11 ? "Transfer-Encoding: chunked\r\n" : ""));
}

void HttpExchangeState::write(std::string_view bytes) {
  MutexLock lock(mutex_);
  // An empty chunk would end a chunked body.
  if (host_ == nullptr || stage_ != Stage::kStreaming || overrun_ || framing_.head_only || bytes.empty()) return;
  // What is written faster than the connection gets to send it is not the reader's fault.
  if (blocked_ && in_flight_ + queued_.size() + bytes.size() > options_->max_unsent_bytes) return cut_off_locked();
  if (framing_.http11) {
    append_locked(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
  } else {
    append_locked(bytes);
  }
}

void HttpExchangeState::finish(HttpExchange::After after) {
  MutexLock lock(mutex_);
  if (host_ == nullptr || stage_ != Stage::kStreaming) return;
  end_locked(after);
}

void HttpExchangeState::post(std::function<void()> task) {
  MutexLock lock(mutex_);
  if (host_ != nullptr) host_->post(std::move(task));
}

void HttpExchangeState::on_closed(std::function<void()> callback) {
  {
    MutexLock lock(mutex_);
    if (!lost_) {
      if (host_ != nullptr) on_closed_ = std::move(callback);
      return;
    }
  }
  callback();
}

void HttpExchangeState::abandon() {
  MutexLock lock(mutex_);
  if (host_ == nullptr || stage_ == Stage::kComplete) return;
  if (stage_ == Stage::kNoHead) {
    respond_locked(render_http_error(*options_, 500, "the server lost this request"));
  } else {
    cut_off_locked();  // no proper end: the client must not take what it has for the whole
  }
}

HttpExchangeState::Pull HttpExchangeState::pull(std::string& bytes) {
  MutexLock lock(mutex_);
  if (overrun_) return Pull::kOverrun;
  if (queued_.empty()) return stage_ == Stage::kComplete ? Pull::kComplete : Pull::kNothingYet;
  bytes.clear();
  std::swap(bytes, queued_);
  in_flight_ = bytes.size();
  return Pull::kBytes;
}

void HttpExchangeState::sent(std::size_t bytes) {
  MutexLock lock(mutex_);
  in_flight_ -= bytes;
}

void HttpExchangeState::blocked(bool blocked) {
  MutexLock lock(mutex_);
  blocked_ = blocked;
  if (blocked && stage_ == Stage::kStreaming && in_flight_ + queued_.size() > options_->max_unsent_bytes) {
    cut_off_locked();
  }
}

void HttpExchangeState::heartbeat() {
  std::string beat;
  {
    MutexLock lock(mutex_);
    beat = heartbeat_;
  }
  write(beat);
}

bool HttpExchangeState::complete() const {
  MutexLock lock(mutex_);
  return stage_ == Stage::kComplete;
}

bool HttpExchangeState::keep_alive() const {
  MutexLock lock(mutex_);
  return keep_alive_;
}

void HttpExchangeState::announce_close() {
  MutexLock lock(mutex_);
  keep_alive_ = false;
}

void HttpExchangeState::detach() {
  std::shared_ptr<HttpExchangeHost> host;
  std::function<void()> callback;
  {
    MutexLock lock(mutex_);
    host = std::move(host_);
    host_ = nullptr;
    lost_ = stage_ != Stage::kComplete;
    callback = std::exchange(on_closed_, nullptr);
    if (!lost_) return;
    queued_.clear();
  }
  if (callback) callback();
}

}  // namespace nmc::net
