#include "http/extra_headers.h"

#include <utility>

namespace nmc::http {
namespace {

class ExchangeWithHeaders final : public net::HttpExchange {
 public:
  ExchangeWithHeaders(std::shared_ptr<net::HttpExchange> inner, std::vector<net::HttpHeader> headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}

  void respond(net::HttpResponse response) override {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    inner_->respond(std::move(response));
  }
  void begin_stream(net::HttpStreamHead head) override {
    head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
    inner_->begin_stream(std::move(head));
  }
  void write(std::string_view bytes) override { inner_->write(bytes); }
  void finish(After after) override { inner_->finish(after); }
  void post(std::function<void()> task) override { inner_->post(std::move(task)); }
  void on_closed(std::function<void()> callback) override { inner_->on_closed(std::move(callback)); }

 private:
  const std::shared_ptr<net::HttpExchange> inner_;
  const std::vector<net::HttpHeader> headers_;
};

}  // namespace

std::shared_ptr<net::HttpExchange> with_headers(std::shared_ptr<net::HttpExchange> exchange,
                                                std::vector<net::HttpHeader> headers) {
  if (headers.empty()) return exchange;
  return std::make_shared<ExchangeWithHeaders>(std::move(exchange), std::move(headers));
}

}  // namespace nmc::http
