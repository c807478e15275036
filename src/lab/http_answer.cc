#include "lab/http_answer.h"

#include "net/asio.h"
// asio.h first.
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace nmc::lab {
namespace {

namespace http = boost::beast::http;

}  // namespace

struct HttpAnswer::Parser {
  Parser() {
    http.eager(true);
    http.header_limit(kHeaderBytesMax);
    http.body_limit(boost::none);  // it is taken as it comes
  }
  http::response_parser<http::string_body> http;
  boost::beast::flat_buffer unparsed;
};

HttpAnswer::HttpAnswer() : parser_(std::make_unique<Parser>()) {}
HttpAnswer::~HttpAnswer() = default;
HttpAnswer::HttpAnswer(HttpAnswer&&) noexcept = default;
HttpAnswer& HttpAnswer::operator=(HttpAnswer&&) noexcept = default;

Result<void> HttpAnswer::add(std::string_view bytes) {
  if (bytes.empty()) return {};
  got_some_ = true;
  auto& unparsed = parser_->unparsed;
  const auto room = unparsed.prepare(bytes.size());
  unparsed.commit(boost::asio::buffer_copy(room, boost::asio::buffer(bytes.data(), bytes.size())));
  boost::system::error_code error;
  // A call may stop early, as after the header of a chunk.
  while (unparsed.size() > 0 && !parser_->http.is_done()) {
    const std::size_t used = parser_->http.put(unparsed.data(), error);
    unparsed.consume(used);
    if (error == http::error::need_more) return {};
    if (error) return corrupt("what came is no HTTP ({})", error.message());
    if (used == 0) return {};
  }
  return {};
}

Result<void> HttpAnswer::close() {
  if (is_done()) return {};
  boost::system::error_code error;
  if (got_some_) parser_->http.put_eof(error);
  if (!got_some_) return unavailable("the server closed the connection without an answer");
  if (error || !is_done()) return unavailable("the server closed the connection before its answer was whole");
  return {};
}

bool HttpAnswer::has_header() const { return parser_->http.is_header_done(); }
bool HttpAnswer::is_done() const { return parser_->http.is_done(); }
int HttpAnswer::status() const { return static_cast<int>(parser_->http.get().result_int()); }
bool HttpAnswer::keeps_alive() const { return parser_->http.keep_alive() && parser_->unparsed.size() == 0; }

std::string HttpAnswer::header(std::string_view name) const {
  const auto& message = parser_->http.get();
  const auto found = message.find(boost::core::string_view(name.data(), name.size()));
  return found == message.end() ? "" : std::string(found->value());
}

std::string HttpAnswer::take_body() { return std::exchange(parser_->http.get().body(), {}); }

}  // namespace nmc::lab
