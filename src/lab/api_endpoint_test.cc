#include "lab/api_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <thread>

#include "base/check.h"
#include "net/tls.h"
#include "net/tls_test_support.h"

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

TEST(ApiEndpointTest, TheBaseOfAnOpenAiClientIsTakenWithAndWithoutItsVersion) {
  for (const char* text :
       {"http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/"}) {
    const auto endpoint = ApiEndpoint::parse(text);
    ASSERT_TRUE(endpoint.has_value()) << text;
    EXPECT_EQ(endpoint->to_string(), "http://127.0.0.1:8000");
  }
  const auto behind = ApiEndpoint::parse("https://example.org/models/x/v1");
  ASSERT_TRUE(behind.has_value());
  EXPECT_EQ(behind->to_string(), "https://example.org:443/models/x");
  EXPECT_TRUE(behind->tls);
  EXPECT_EQ(ApiEndpoint::parse("http://[::1]")->to_string(), "http://[::1]:80");
}

TEST(ApiEndpointTest, AnythingElseIsRefusedWithTheForm) {
  for (const char* text : {"", "127.0.0.1:8000", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://x y",
                           "http://user@x", "http://x?y=z", "unix:/x"}) {
    const auto endpoint = ApiEndpoint::parse(text);
    ASSERT_FALSE(endpoint.has_value()) << text;
    EXPECT_THAT(endpoint.error().message, HasSubstr("http[s]://HOST"));
  }
}

TEST(ApiEndpointTest, ARequestCarriesItsHeadersAndTheLengthOfItsBody) {
  const auto endpoint = ApiEndpoint::parse("http://example.org:81/x");
  ASSERT_TRUE(endpoint.has_value());
  EXPECT_EQ(endpoint->format_request("POST", "/v1/completions", {{"Authorization", "Bearer k"}}, "{}"),
            "POST /x/v1/completions HTTP/1.1\r\nHost: example.org:81\r\nAccept: */*\r\nAuthorization: Bearer k\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

// One connection, one fixed answer, by the certificate that is given.
class SecureServer {
 public:
  explicit SecureServer(const net::TestAuthority::Files& files)
      : context_(*net::TlsContext::for_server(files.certificate, files.key)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    NMC_ASSERT(::bind(listener_.get(), plain, size) == 0 && ::listen(listener_.get(), 1) == 0);
    NMC_ASSERT(::getsockname(listener_.get(), plain, &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~SecureServer() { thread_.join(); }

  std::string url(const std::string& host) const { return fmt::format("https://{}:{}", host, port_); }

 private:
  void serve() {
    net::TcpStream stream(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    auto session = net::TlsSession::create(*context_, stream.fd(), "");
    for (;;) {  // on a blocking socket each step waits
      const auto step = (*session)->shake_hands();
      if (!step) return;
      if (*step == net::TlsSession::Step::kDone) break;
    }
    stream.secure(std::move(*session));
    std::string request(4096, '\0');
    const iovec to{request.data(), request.size()};
    if (stream.read({&to, 1}).bytes == 0) return;
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    const iovec from{answer.data(), answer.size()};
    static_cast<void>(stream.write({&from, 1}));
  }

  const std::shared_ptr<const net::TlsContext> context_;
  const UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST(ApiEndpointTest, HttpsWantsACertificateOfATrustedAuthorityThatNamesTheHost) {
  auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.has_value());
  const net::TestAuthority trusted(folder->path()), other(folder->path(), "other");
  const auto ask = [](const SecureServer& server, const std::string& host, const Path& authorities) {
    auto endpoint = *ApiEndpoint::parse(server.url(host));
    endpoint.authorities = authorities;
    return api_get(endpoint, "/x", {}, std::chrono::seconds(20));
  };
  {
    const SecureServer server(trusted.issue("good", "IP:127.0.0.1"));
    const auto answer = ask(server, "127.0.0.1", trusted.file());
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    EXPECT_EQ(answer->body, "hi");
  }
  {
    const SecureServer server(trusted.issue("elsewhere", "IP:127.0.0.2"));
    EXPECT_FALSE(ask(server, "127.0.0.1", trusted.file()).has_value());
  }
  const SecureServer server(other.issue("stranger", "IP:127.0.0.1"));
  EXPECT_FALSE(ask(server, "127.0.0.1", trusted.file()).has_value());
}

}  // namespace
}  // namespace nmc::lab
