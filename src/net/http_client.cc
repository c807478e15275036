#include "net/http_client.h"

#include "net/asio.h"
// asio.h first.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>

#include "base/syscall.h"
#include "net/dial.h"

namespace nmc::net {
namespace {

namespace http = boost::beast::http;
using Parser = http::response_parser<http::string_body>;

constexpr std::string_view kScheme = "http://";
constexpr std::uint16_t kDefaultPort = 80;

Failure malformed(std::string_view text, std::string_view why) {
  return invalid_argument("url \"{}\": {}, expected http://HOST[:PORT][/PATH]", text, why);
}

bool is_printable(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return false;
  }
  return true;
}

// One GET on one connection.
class Exchange {
 public:
  Exchange(const HttpUrl& url, const HttpClientOptions& options)
      : url_(url), options_(options), until_(real_clock().now() + options.timeout) {
    parser_.eager(true);
    parser_.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
    parser_.body_limit(options.max_body_bytes);
  }

  Result<HttpResponse> run() {
    auto connected = dial(url_.address, until_);
    if (!connected) return Failure(std::move(connected).error().with_context(url_.to_string()));
    fd_ = std::move(*connected);
    NMC_RETURN_IF_ERROR(send(request()));
    while (!parser_.is_done()) NMC_RETURN_IF_ERROR(receive());
    return response();
  }

 private:
  std::string request() const {
    std::string text = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: */*\r\n", url_.target,
                                   url_.address.to_string());
    for (const HttpHeader& header : options_.headers) text += fmt::format("{}: {}\r\n", header.name, header.value);
    return text + "\r\n";
  }

  Result<void> wait_for(short event) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - real_clock().now());
      if (left.count() <= 0) {
        return deadline_exceeded("{}: no whole answer within {:g} s", url_.to_string(), to_ms(options_.timeout) / 1e3);
      }
      pollfd waiting = {fd_.get(), event, 0};
      const int ready = retry_on_eintr([&] { return ::poll(&waiting, 1, static_cast<int>(left.count())); });
      if (ready < 0) return Failure(os_error("poll", url_.to_string()));
      if (ready > 0) return {};
    }
  }

  Result<void> send(std::string_view text) {
    while (!text.empty()) {
      NMC_RETURN_IF_ERROR(wait_for(POLLOUT));
      const ssize_t count = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count < 0) return broken();
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
  }

  Result<void> receive() {
    NMC_RETURN_IF_ERROR(wait_for(POLLIN));
    std::array<char, 16 << 10> piece;
    const ssize_t count = ::recv(fd_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (count < 0) return broken();
    boost::system::error_code error;
    if (count == 0) {
      if (!parser_.got_some()) return broken();
      parser_.put_eof(error);
      if (error || !parser_.is_done()) return broken();
      return {};
    }
    buffer_.commit(boost::asio::buffer_copy(buffer_.prepare(static_cast<std::size_t>(count)),
                                            boost::asio::buffer(piece.data(), static_cast<std::size_t>(count))));
    buffer_.consume(parser_.put(buffer_.data(), error));
    if (!error || error == http::error::need_more) return {};
    if (error == http::error::body_limit || error == http::error::header_limit) {
      return resource_exhausted("{}: the answer is too large, expected at most {} bytes of headers and {} of body",
                                url_.to_string(), options_.max_header_bytes, options_.max_body_bytes);
    }
    return corrupt("{}: what answers there doesn't speak HTTP ({})", url_.to_string(), error.message());
  }

  Failure broken() const { return unavailable("{}: the connection ended before the answer did", url_.to_string()); }

  HttpResponse response() {
    auto message = parser_.release();
    HttpResponse response{.status = static_cast<int>(message.result_int()), .content_type = ""};
    for (const auto& field : message) {
      HttpHeader header{std::string(field.name_string()), std::string(field.value())};
      if (field.name() == http::field::content_type) response.content_type = header.value;
      response.headers.push_back(std::move(header));
    }
    response.body = std::move(message.body());
    return response;
  }

  const HttpUrl& url_;
  const HttpClientOptions& options_;
  const Nanos until_;
  UniqueFd fd_;
  Parser parser_;
  boost::beast::flat_buffer buffer_;  // received, not parsed
};

}  // namespace

Result<HttpUrl> HttpUrl::parse(std::string_view text) {
  if (text.starts_with("https://")) {
    return unsupported("url \"{}\": TLS is not spoken here, expected http://HOST[:PORT][/PATH]", text);
  }
  if (!text.starts_with(kScheme)) return malformed(text, "it doesn't begin with http://");
  if (!is_printable(text)) return malformed(text, "a space or control character in it");
  const std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = rest.find_first_of("/?#");
  std::string authority(rest.substr(0, slash));
  const bool has_port = authority.find(':', authority.starts_with('[') ? authority.find(']') : 0) != authority.npos;
  if (!has_port) authority += fmt::format(":{}", kDefaultPort);
  auto address = Address::parse(authority);
  if (!address || address->carrier != Carrier::kTcp) return malformed(text, "no host, or no port from 1 to 65535");
  std::string target(slash == rest.npos ? "" : rest.substr(slash, rest.find('#') - slash));
  if (!target.starts_with('/')) target.insert(0, "/");
  return HttpUrl{std::move(*address), std::move(target)};
}

std::string HttpUrl::to_string() const { return fmt::format("{}{}{}", kScheme, address.to_string(), target); }

Result<HttpResponse> http_get(const HttpUrl& url, const HttpClientOptions& options) {
  return Exchange(url, options).run();
}

}  // namespace nmc::net
