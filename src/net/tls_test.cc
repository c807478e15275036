// TLS under the messages: what goes through it, and who is turned away by which words.
#include "net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <atomic>

#include "net/channel_test_support.h"
#include "net/tls_test_support.h"

namespace nmc::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  std::unique_ptr<ChannelServer> serve(ChannelServerOptions options = {}) {
    options.tcp_host = "127.0.0.1";
    auto server = ChannelServer::start(options, handler_);
    EXPECT_TRUE(server) << server.error().message;
    address_ = {.host = options.tcp_host, .port = (*server)->tcp_port()};
    return std::move(*server);
  }
  std::unique_ptr<ChannelServer> serve_with(const TestAuthority::Files& files, ChannelServerOptions options = {}) {
    options.tls_cert = files.certificate;
    options.tls_key = files.key;
    return serve(std::move(options));
  }
  std::unique_ptr<ChannelServer> serve_well(ChannelServerOptions options = {}) {
    return serve_with(authority_.issue("server", "DNS:localhost,IP:127.0.0.1"), std::move(options));
  }

  Error failure_of(ChannelOptions options) {
    const auto channel = Channel::connect(address_, std::move(options));
    EXPECT_FALSE(channel);
    return channel ? Error{} : channel.error();
  }

  // What the server says to these options.
  Error refusal_of(ChannelServerOptions options) {
    options.tcp_host = "127.0.0.1";
    const auto server = ChannelServer::start(std::move(options), handler_);
    EXPECT_FALSE(server);
    return server ? Error{} : server.error();
  }

  static void exchange(Channel& channel, std::size_t size) {
    const Bytes out = pattern(size, size);
    Bytes in(size);
    const ByteSpan from(out);
    const MutableByteSpan to(in);
    const auto reply =
        channel.call({.op = kEcho, .body = as_bytes("body"), .payload = {&from, 1}}, place_into({&to, 1}));
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_TRUE(std::ranges::equal(reply->body, as_bytes("body")));
    EXPECT_TRUE(in == out) << size;
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-tls").value();
  TestAuthority authority_{folder_.path()};
  TestHandler handler_;
  Address address_;
};

TEST_F(TlsTest, MessagesOfAllSizesGoThroughIt) {
  const auto server = serve_well({.token = "t"});
  const auto channel = Channel::connect(address_, {.token = "t", .tls_ca = authority_.file()});
  ASSERT_TRUE(channel) << channel.error().message;
  for (const std::size_t size : {0, 1, 500, 16384, 16385, 300'000, 5 << 20}) exchange(**channel, size);
}

TEST_F(TlsTest, RequestsSentAheadAreAnsweredInOrder) {
  const auto server = serve_well();
  const auto channel = Channel::connect(address_, {.tls_ca = authority_.file()});
  ASSERT_TRUE(channel) << channel.error().message;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*channel)->send({.op = kCountCalls}));
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const auto reply = (*channel)->receive();
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->reader().get_u64("count"), i);
  }
}

TEST_F(TlsTest, TheHostIsCheckedByNameAndByAddress) {
  const auto server = serve_with(authority_.issue("named", "DNS:localhost,IP:127.0.0.1"));
  for (const char* host : {"localhost", "127.0.0.1"}) {
    address_.host = host;
    const auto channel = Channel::connect(address_, {.tls_ca = authority_.file()});
    EXPECT_TRUE(channel) << channel.error().message;
  }
}

// Between a client and a server: relays bytes in pieces of few, so that records arrive cut anywhere; and turns one over
// on its way from the server once `damage` is set.
class Relay {
 public:
  Relay(const Address& to, std::size_t piece)
      : server_(Carrier::kTcp, [this, to, piece](RawPeer& client) {
          RawPeer server = RawPeer::connect(to);
          std::array<RawPeer*, 2> ends = {&client, &server};
          std::array<pollfd, 2> polls = {{{client.fd(), POLLIN, 0}, {server.fd(), POLLIN, 0}}};
          const int on = 1;
          for (const pollfd& poll : polls) (void)::setsockopt(poll.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
          Bytes bytes(piece);
          while (::poll(polls.data(), polls.size(), 10'000) > 0) {
            for (std::size_t i = 0; i < 2; ++i) {
              if (polls[i].revents == 0) continue;
              const ssize_t count = ::recv(polls[i].fd, bytes.data(), bytes.size(), 0);
              if (count <= 0) return;
              if (i == 1 && damage.load()) bytes[static_cast<std::size_t>(count) / 2] ^= std::byte{4};
              if (!ends[1 - i]->send(ByteSpan(bytes).first(static_cast<std::size_t>(count)))) return;
            }
          }
        }) {}
  const Address& address() const { return server_.address(); }

  std::atomic<bool> damage{false};

 private:
  ScriptedServer server_;
};

TEST_F(TlsTest, RecordsThatArriveInPiecesAreWhole) {
  const auto server = serve_well();
  for (const std::size_t piece : {1, 3, 1000}) {
    Relay relay(address_, piece);
    const auto channel = Channel::connect(relay.address(), {.tls_ca = authority_.file()});
    ASSERT_TRUE(channel) << channel.error().message;
    exchange(**channel, 20'000);
  }
}

// A byte turned over on the way is an error at the end that gets it, never another message.
TEST_F(TlsTest, WhatIsChangedOnTheWayIsRefused) {
  const auto server = serve_well();
  Relay relay(address_, 4096);
  const auto channel = Channel::connect(relay.address(), {.tls_ca = authority_.file()});
  ASSERT_TRUE(channel) << channel.error().message;
  exchange(**channel, 1000);
  relay.damage.store(true);
  EXPECT_FALSE((*channel)->call({.op = kCountCalls}));
  EXPECT_FALSE((*channel)->usable());
}

// ---- who is turned away ----

TEST_F(TlsTest, ACertificateOfAnotherAuthorityIsRefused) {
  const auto server = serve_well();
  const TestAuthority other(folder_.path(), "other");
  const Error error = failure_of({.tls_ca = other.file()});
  EXPECT_EQ(error.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message, AllOf(HasSubstr(address_.to_string()), HasSubstr("NANO_MOONCAKE_TLS_CA")));
}

TEST_F(TlsTest, ACertificateForAnotherHostIsRefused) {
  for (const char* names : {"DNS:elsewhere.example", "IP:127.0.0.2", "DNS:127.0.0.1"}) {
    const auto server = serve_with(authority_.issue("elsewhere", names));
    const Error error = failure_of({.tls_ca = authority_.file()});
    EXPECT_EQ(error.code, ErrorCode::kPermissionDenied) << names;
    EXPECT_THAT(error.message, HasSubstr("mismatch"));
  }
}

TEST_F(TlsTest, ACertificatePastItsEndIsRefused) {
  const auto server = serve_with(authority_.issue("old", "IP:127.0.0.1", -60));
  const Error error = failure_of({.tls_ca = authority_.file()});
  EXPECT_EQ(error.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message, HasSubstr("expired"));
}

TEST_F(TlsTest, TheTokenIsStillAskedFor) {
  const auto server = serve_well({.token = "right"});
  EXPECT_THAT(failure_of({.tls_ca = authority_.file()}).message, HasSubstr("set NANO_MOONCAKE_TOKEN"));
  EXPECT_THAT(failure_of({.token = "wrong", .tls_ca = authority_.file()}).message, HasSubstr("wrong token"));
}

TEST_F(TlsTest, AClientWithoutItIsToldSo) {
  const auto server = serve_well();
  const Error error = failure_of({});
  EXPECT_EQ(error.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message, AllOf(HasSubstr("wants TLS"), HasSubstr("NANO_MOONCAKE_TLS_CA")));
}

TEST_F(TlsTest, AServerWithoutItIsFoundOut) {
  const auto server = serve();
  const Error error = failure_of({.tls_ca = authority_.file()});
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("doesn't speak it"), HasSubstr("--tls-cert"), HasSubstr("unset")));
}

TEST_F(TlsTest, AnHttpServerIsFoundOut) {
  const ScriptedServer server(Carrier::kTcp, [](RawPeer& peer) {
    peer.send(as_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"));
    peer.at_end();
  });
  address_ = server.address();
  EXPECT_THAT(failure_of({.tls_ca = authority_.file()}).message, HasSubstr("doesn't speak it"));
}

TEST_F(TlsTest, SilenceEndsWithTheConnectDeadline) {
  Signal done;
  const ScriptedServer server(Carrier::kTcp, [&](RawPeer&) { done.wait(); });
  address_ = server.address();
  const Nanos began = real_clock().now();
  const Error error = failure_of({.tls_ca = authority_.file(), .connect_deadline = std::chrono::milliseconds(100)});
  done.raise();
  EXPECT_EQ(error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(real_clock().now() - began, std::chrono::seconds(5));
}

TEST_F(TlsTest, AStrangerInsideTheHandshakeIsClosed) {
  const auto server = serve_well({.handshake_deadline = std::chrono::milliseconds(300)});
  for (const std::string_view start : {"\x16\x03\x01 not a hello at all, and long enough", "GET / HTTP/1.1\r\n\r\n"}) {
    RawPeer peer = RawPeer::connect(address_);
    ASSERT_TRUE(peer.send(as_bytes(start)));
    while (!peer.at_end()) {  // an alert comes first
    }
  }
  EXPECT_TRUE(Channel::connect(address_, {.tls_ca = authority_.file()}));
}

TEST_F(TlsTest, EarlierVersionsAreRefused) {
  const auto server = serve_well();
  const RawPeer peer = RawPeer::connect(address_);
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
  ASSERT_EQ(::SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION), 1);
  SSL* const ssl = ::SSL_new(context);
  ::SSL_set_fd(ssl, peer.fd());
  EXPECT_NE(::SSL_connect(ssl), 1);
  ::SSL_free(ssl);
  ::SSL_CTX_free(context);
}

TEST_F(TlsTest, AUnixSocketNeedsNone) {
  const auto files = authority_.issue("server", "IP:127.0.0.1");
  const Address address{.carrier = Carrier::kUnix, .path = (folder_.path() / "socket").string()};
  const auto server = ChannelServer::start(
      {.unix_path = address.path, .tcp_host = "127.0.0.1", .tls_cert = files.certificate, .tls_key = files.key},
      handler_);
  ASSERT_TRUE(server) << server.error().message;
  const auto channel = Channel::connect(address, {.tls_ca = authority_.file()});
  ASSERT_TRUE(channel) << channel.error().message;
  exchange(**channel, 1000);
}

// ---- files ----

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  const auto files = authority_.issue("server", "IP:127.0.0.1"), other = authority_.issue("another", "IP:127.0.0.1");
  const Path none = folder_.path() / "none", text = folder_.path() / "text";
  ASSERT_TRUE(write_file_atomic(text, "no such thing\n"));
  const struct {
    Path certificate, key;
    std::string said;
  } cases[] = {
      {files.certificate, "", "only the certificate is given"},
      {"", files.key, "only the key is given"},
      {none, files.key, none.string()},
      {files.certificate, none, none.string()},
      {text, files.key, "text is no certificate"},
      {files.certificate, text, "text is no key"},
      {files.certificate, other.key, "another.key isn't that of the certificate"},
  };
  for (const auto& one : cases) {
    const Error error = refusal_of({.tls_cert = one.certificate, .tls_key = one.key});
    EXPECT_THAT(error.message, HasSubstr(one.said));
  }
  const auto server = serve_with(files);
  EXPECT_THAT(failure_of({.tls_ca = none}).message, HasSubstr(none.string()));
  EXPECT_THAT(failure_of({.tls_ca = text}).message, HasSubstr("text has no certificate"));
}

}  // namespace
}  // namespace nmc::net
