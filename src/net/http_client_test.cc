#include "net/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "base/syscall.h"
#include "net/http_server.h"

namespace nmc::net {
namespace {

using ::testing::HasSubstr;

HttpUrl url_of(const std::string& text) {
  auto url = HttpUrl::parse(text);
  EXPECT_TRUE(url) << url.error().message;
  return url ? *url : HttpUrl{};
}

TEST(HttpUrl, HasHostPortAndTarget) {
  struct Case {
    const char *text, *address, *target;
  };
  for (const Case& each : {
           Case{"http://127.0.0.1:8000", "127.0.0.1:8000", "/"},
           Case{"http://moon.example", "moon.example:80", "/"},
           Case{"http://moon.example/a/b?c=d", "moon.example:80", "/a/b?c=d"},
           Case{"http://[::1]:9/x#part", "[::1]:9", "/x"},
           Case{"http://[::1]", "[::1]:80", "/"},
           Case{"http://h?q", "h:80", "/?q"},
       }) {
    const HttpUrl url = url_of(each.text);
    EXPECT_EQ(url.address.to_string(), each.address);
    EXPECT_EQ(url.target, each.target);
  }
  EXPECT_EQ(url_of("http://h:1/x").at("/y").to_string(), "http://h:1/y");
}

TEST(HttpUrl, WhatIsNoneSaysWhatWasExpected) {
  for (const char* text : {"", "h:80", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:99999", "http://h:x",
                           "http://unix:/a", "http://h/a b", "http://h/\r\nX: y", "http://a:b:c"}) {
    const auto url = HttpUrl::parse(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(url.error().message, HasSubstr("expected http://HOST[:PORT][/PATH]")) << text;
  }
  EXPECT_EQ(HttpUrl::parse("https://h").error().code, ErrorCode::kUnsupported);
}

TEST(HttpClient, GetsWhatOurServerAnswers) {
  auto server = HttpServer::start({}, [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    if (request.path == "/stream") {
      exchange->begin_stream({.content_type = "text/plain"});
      for (const char* piece : {"one ", "two"}) exchange->write(piece);
      return exchange->finish();
    }
    const std::string* key = request.header("X-Key");
    exchange->respond({.status = 418, .body = request.target + (key == nullptr ? "" : *key)});
  });
  ASSERT_TRUE(server);
  const HttpUrl url = url_of((*server)->url());
  const auto whole = http_get(url.at("/a?b"), {.headers = {{"X-Key", "secret"}}});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->status, 418);
  EXPECT_EQ(whole->content_type, "application/json");
  EXPECT_EQ(whole->body, "/a?bsecret");
  const auto stream = http_get(url.at("/stream"));
  ASSERT_TRUE(stream) << stream.error().message;
  EXPECT_EQ(stream->body, "one two");
}

// A server of one connection that says exactly these bytes, in pieces of one size, then closes or holds the line.
class Saying {
 public:
  explicit Saying(std::string bytes, std::size_t piece = SIZE_MAX, bool holds = false) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url_ = url_of(fmt::format("http://127.0.0.1:{}/x", ntohs(address.sin_port)));
    thread_ = std::thread([this, bytes = std::move(bytes), piece, holds] {
      const UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      while (::recv(peer.get(), request, sizeof request, 0) == static_cast<ssize_t>(sizeof request)) {
      }
      for (std::size_t at = 0; at < bytes.size(); at += std::min(piece, bytes.size() - at)) {
        if (::send(peer.get(), bytes.data() + at, std::min(piece, bytes.size() - at), MSG_NOSIGNAL) < 0) return;
      }
      if (holds) ::recv(peer.get(), request, sizeof request, 0);  // until the client has gone
    });
  }
  ~Saying() { thread_.join(); }
  const HttpUrl& url() const { return url_; }

 private:
  UniqueFd listener_;
  HttpUrl url_;
  std::thread thread_;
};

TEST(HttpClient, AnswersComeWholeHoweverTheyAreFramedAndCut) {
  for (const char* answer : {
           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
           "HTTP/1.0 200 OK\r\n\r\nhello",  // until it closes
       }) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{7}, SIZE_MAX}) {
      const Saying server(answer, piece);
      const auto got = http_get(server.url());
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(got->status, 200);
      EXPECT_EQ(got->body, "hello") << answer << " in " << piece;
    }
  }
}

void expect_error(const Result<HttpResponse>& got, ErrorCode code, const HttpUrl& url) {
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, code) << got.error().message;
  EXPECT_THAT(got.error().message, HasSubstr(url.to_string()));
}

TEST(HttpClient, WhatBreaksOffIsNoAnswer) {
  for (const char* answer : {"", "HTTP/1.1 200 OK\r\nConte", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"}) {
    SCOPED_TRACE(answer);
    const Saying server(answer);
    expect_error(http_get(server.url()), ErrorCode::kUnavailable, server.url());
  }
}

TEST(HttpClient, OtherProtocolsAreTold) {
  const Saying server("SSH-2.0-OpenSSH_9.2\r\n");
  expect_error(http_get(server.url()), ErrorCode::kCorrupt, server.url());
}

TEST(HttpClient, SizesAreBounded) {
  const std::string body(2000, 'x');
  for (const std::string& answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + body, "HTTP/1.0 200 OK\r\n\r\n" + body,
        "HTTP/1.1 200 OK\r\nX: " + body + "\r\nContent-Length: 0\r\n\r\n"}) {
    const Saying server(answer, 100);
    expect_error(http_get(server.url(), {.max_header_bytes = 1000, .max_body_bytes = 1000}),
                 ErrorCode::kResourceExhausted, server.url());
  }
}

TEST(HttpClient, SilenceEndsWithTheTimeout) {
  const Saying server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", SIZE_MAX, true);
  expect_error(http_get(server.url(), {.timeout = std::chrono::milliseconds(50)}), ErrorCode::kDeadlineExceeded,
               server.url());
}

TEST(HttpClient, NobodyThereIsUnavailable) {
  HttpUrl url;
  {
    const Saying server("HTTP/1.0 200 OK\r\n\r\n");
    url = server.url();
    EXPECT_TRUE(http_get(url));
  }
  expect_error(http_get(url), ErrorCode::kUnavailable, url);
}

}  // namespace
}  // namespace nmc::net
