// How connections begin, or don't: who is there, who may come in, and what a listening server leaves on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "net/channel_test_support.h"

namespace nmc::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kShort = std::chrono::milliseconds(100);

class ConnectTest : public ::testing::TestWithParam<Carrier> {
 protected:
  std::unique_ptr<ChannelServer> serve(ChannelServerOptions options = {}) {
    if (GetParam() == Carrier::kUnix) {
      options.unix_path = path();
    } else {
      options.tcp_host = "127.0.0.1";
    }
    auto server = ChannelServer::start(options, handler_);
    EXPECT_TRUE(server) << server.error().message;
    address_ = {
        .carrier = GetParam(), .path = options.unix_path, .host = options.tcp_host, .port = (*server)->tcp_port()};
    return std::move(*server);
  }
  std::string path() const { return (folder_.path() / "socket").string(); }

  static Error failure_of(const Address& address, ChannelOptions options = {}) {
    const Stopwatch stopwatch;
    const auto channel = Channel::connect(address, options);
    EXPECT_LT(stopwatch.elapsed(), options.connect_deadline + std::chrono::seconds(1));
    EXPECT_FALSE(channel);
    if (channel) return {};
    EXPECT_THAT(channel.error().message, HasSubstr(address.to_string()));
    return channel.error();
  }
  // What connect() says to a server that plays `script`.
  static Error failure_with(ScriptedServer::Script script, ChannelOptions options = {}) {
    const ScriptedServer server(GetParam(), std::move(script));
    return failure_of(server.address(), options);
  }

  TemporaryFolder folder_ = TemporaryFolder::create().value();
  TestHandler handler_;
  Address address_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, ConnectTest, ::testing::Values(Carrier::kUnix, Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(ConnectTest, SaysThatNobodyIsThere) {
  serve().reset();
  const Error gone = failure_of(address_);
  EXPECT_EQ(gone.code, ErrorCode::kUnavailable);
  EXPECT_THAT(gone.message, HasSubstr("is the server running there"));
}

TEST_P(ConnectTest, GivesUpOnAFullBacklogAtItsDeadline) {
  const ScriptedServer server(GetParam(), nullptr);  // accepts nobody
  std::vector<RawPeer> waiting;
  waiting.push_back(RawPeer::connect(server.address()));
  // Unix has room for one more than the backlog, TCP for one more than that.
  const Error full = failure_of(server.address(), {.connect_deadline = kShort});
  EXPECT_EQ(full.code, ErrorCode::kDeadlineExceeded);
}

TEST_P(ConnectTest, KnowsAStrangerByItsAnswer) {
  const Error http = failure_with([](RawPeer& peer) {
    ASSERT_TRUE(peer.receive());
    peer.send(as_bytes("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_TRUE(peer.at_end());
  });
  EXPECT_EQ(http.code, ErrorCode::kUnavailable);
  EXPECT_THAT(http.message, AllOf(HasSubstr("no server of nano-mooncake"), HasSubstr("HTTP/1.1 400")));
  // Shorter than a frame's header, and the connection stays open.
  const Error banner = failure_with([](RawPeer& peer) {
    peer.send(as_bytes("220 hi\r\n"));
    ASSERT_TRUE(peer.receive());
    EXPECT_TRUE(peer.at_end());
  });
  EXPECT_EQ(banner.code, ErrorCode::kUnavailable);
  EXPECT_THAT(banner.message, HasSubstr("220 hi"));
}

TEST_P(ConnectTest, GivesUpOnASilentStrangerAtItsDeadline) {
  const Error silent = failure_with(
      [](RawPeer& peer) {
        ASSERT_TRUE(peer.receive());
        EXPECT_TRUE(peer.at_end());
      },
      {.connect_deadline = kShort});
  EXPECT_EQ(silent.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(silent.message, HasSubstr("is it a nano-mooncake server?"));
}

TEST_P(ConnectTest, GivesUpOnAStrangerThatHangsUp) {
  const Error closed = failure_with([](RawPeer& peer) {
    ASSERT_TRUE(peer.receive());
    peer.close();
  });
  EXPECT_EQ(closed.code, ErrorCode::kUnavailable);
}

TEST_P(ConnectTest, NamesBothVersions) {
  const Error other = failure_with([](RawPeer& peer) {
    ASSERT_TRUE(peer.receive());
    peer.send(patched(frame_bytes({.op = kOpHello}, encode_greeting({})), 4, std::uint16_t{2}));
    EXPECT_TRUE(peer.at_end());
  });
  EXPECT_EQ(other.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(other.message, AllOf(HasSubstr("version 2"), HasSubstr("version 1")));
}

TEST_P(ConnectTest, TellsAClientOfAnotherVersion) {
  const auto server = serve();
  RawPeer peer = RawPeer::connect(address_);
  ASSERT_TRUE(peer.send(patched(frame_bytes({.op = kOpHello}, encode_hello({})), 4, std::uint16_t{9})));
  const auto reply = peer.receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->first.status, FrameStatus::kError);
  EXPECT_EQ(decode_error(reply->second).code, ErrorCode::kVersionMismatch);
  EXPECT_TRUE(peer.at_end());
}

TEST_P(ConnectTest, ClosesAClientThatDoesNotShakeHandsInTime) {
  const auto server = serve({.handshake_deadline = kShort});
  RawPeer silent = RawPeer::connect(address_);
  EXPECT_TRUE(silent.at_end());
}

TEST_P(ConnectTest, ClosesAClientThatSkipsTheHandshake) {
  const auto server = serve();
  RawPeer hasty = RawPeer::connect(address_);
  ASSERT_TRUE(hasty.send(frame_bytes({.op = kEcho, .request_id = 1})));
  EXPECT_TRUE(hasty.at_end());
  EXPECT_FALSE(handler_.opened.wait(1, Nanos::zero()));
}

TEST_P(ConnectTest, OpensToTheRightTokenOnly) {
  const auto server = serve({.token = "open sesame", .token_on_unix = true});
  EXPECT_TRUE(Channel::connect(address_, {.token = "open sesame"}).value()->call({.op = kEcho}));
  const Error missing = failure_of(address_);
  EXPECT_EQ(missing.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(missing.message, HasSubstr("NANO_MOONCAKE_TOKEN"));
  const Error wrong = failure_of(address_, {.token = "open sesamy"});
  EXPECT_EQ(wrong.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(wrong.message, AllOf(HasSubstr("wrong token"), HasSubstr("NANO_MOONCAKE_TOKEN")));
  EXPECT_TRUE(Channel::connect(address_, {.token = "open sesame"}));
}

TEST_P(ConnectTest, ClosesAClientWhoseProofIsAnotherHandshakes) {
  const auto server = serve({.token = "open sesame", .token_on_unix = true});
  RawPeer peer = RawPeer::connect(address_);
  ASSERT_TRUE(peer.greet_as_client());
  ASSERT_TRUE(peer.send(frame_bytes({.op = kOpProof}, encode_proof(token_proof("open sesame", Prover::kClient, {})))));
  const auto reply = peer.receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(decode_error(reply->second).code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(peer.at_end());
}

TEST_P(ConnectTest, RefusesAServerThatDoesNotKnowTheToken) {
  const Error impostor = failure_with(
      [](RawPeer& peer) {
        ASSERT_TRUE(peer.receive());
        peer.send(frame_bytes({.op = kOpHello}, encode_greeting({.token_wanted = true})));
        const auto proof = peer.receive();
        ASSERT_TRUE(proof);
        peer.send(frame_bytes({.op = kOpProof}, proof->second));  // the client's own, sent back
        EXPECT_TRUE(peer.at_end());
      },
      {.token = "open sesame"});
  EXPECT_EQ(impostor.code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(impostor.message, HasSubstr("NANO_MOONCAKE_TOKEN"));
}

TEST_P(ConnectTest, AServerWithoutATokenIsTrustedOnUnixOnly) {
  const auto server = serve();
  if (GetParam() == Carrier::kUnix) {
    EXPECT_TRUE(Channel::connect(address_, {.token = "open sesame"}));
  } else {
    EXPECT_EQ(failure_of(address_, {.token = "open sesame"}).code, ErrorCode::kPermissionDenied);
  }
}

class TcpConnectTest : public ConnectTest {};
INSTANTIATE_TEST_SUITE_P(Tcp, TcpConnectTest, ::testing::Values(Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(TcpConnectTest, FindsHostsByName) {
  const auto server = serve();
  address_.host = "localhost";  // perhaps ::1 first, where nobody listens
  const auto channel = Channel::connect(address_);
  ASSERT_TRUE(channel) << channel.error().message;
}

TEST_P(TcpConnectTest, SaysWhenThereIsNoSuchHost) {
  const Error unknown = failure_of({.host = "no-such-host.invalid", .port = 1});
  // Where a name server doesn't answer, time is what runs out.
  EXPECT_TRUE(unknown.code == ErrorCode::kNotFound || unknown.code == ErrorCode::kDeadlineExceeded) << unknown.message;
}

TEST_P(TcpConnectTest, AGreetingThatTricklesEndsAtTheDeadline) {
  Signal given_up;
  const Error trickle = failure_with(
      [&](RawPeer& peer) {
        ASSERT_TRUE(peer.receive());
        for (const std::byte byte : frame_bytes({.op = kOpHello}, encode_greeting({}))) {
          if (!peer.send({&byte, 1}) || given_up.wait(1, std::chrono::milliseconds(20))) return;
        }
      },
      {.connect_deadline = kShort});
  given_up.raise();
  EXPECT_EQ(trickle.code, ErrorCode::kDeadlineExceeded);
}

TEST_P(TcpConnectTest, NamesAPortInUse) {
  const auto server = serve();
  const auto second = ChannelServer::start({.tcp_host = "127.0.0.1", .tcp_port = server->tcp_port()}, handler_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("127.0.0.1 port {}", server->tcp_port())));
}

TEST_P(TcpConnectTest, OpensNothingWhenItCannotOpenAll) {
  const auto server = serve();
  const auto second =
      ChannelServer::start({.unix_path = path(), .tcp_host = "127.0.0.1", .tcp_port = server->tcp_port()}, handler_);
  EXPECT_FALSE(second);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_P(TcpConnectTest, ListensBeyondLoopbackOnlyWithATokenOrWhenTold) {
  const auto refused = ChannelServer::start({.tcp_host = "0.0.0.0"}, handler_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("NANO_MOONCAKE_TOKEN"));
  EXPECT_TRUE(ChannelServer::start({.tcp_host = "0.0.0.0", .token = "open sesame"}, handler_));
  EXPECT_TRUE(ChannelServer::start({.tcp_host = "0.0.0.0", .insecure = true}, handler_));
}

class UnixConnectTest : public ConnectTest {};
INSTANTIATE_TEST_SUITE_P(Unix, UnixConnectTest, ::testing::Values(Carrier::kUnix),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(UnixConnectTest, MakesAFileForItsUserOnlyAndRemovesIt) {
  auto server = serve();
  struct stat file;
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600u);
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
  server = serve({.unix_mode = 0666});  // more than the umask gives
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0666u);
}

TEST_P(UnixConnectTest, ReplacesTheFileOfADeadServer) {
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, path().c_str());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  const auto server = serve();
  EXPECT_TRUE(Channel::connect(address_));
}

TEST_P(UnixConnectTest, LeavesALiveServerAlone) {
  const auto server = serve();
  const auto second = ChannelServer::start({.unix_path = path()}, handler_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr(path()), HasSubstr("live server")));
  EXPECT_TRUE(Channel::connect(address_));
}

TEST_P(UnixConnectTest, LeavesAFileThatIsNoSocketAlone) {
  std::ofstream(path()) << "precious";
  const auto refused = ChannelServer::start({.unix_path = path()}, handler_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(path()), 8u);
}

TEST_P(UnixConnectTest, RefusesAPathThatIsTooLong) {
  const std::string far = (folder_.path() / std::string(120, 'x')).string();
  EXPECT_EQ(ChannelServer::start({.unix_path = far}, handler_).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Channel::connect({.carrier = Carrier::kUnix, .path = far}).error().code, ErrorCode::kInvalidArgument);
}

class PeerAsking final : public MessageHandler {
 public:
  boost::asio::awaitable<Reply> handle(Session& session, Request&) override {
    BodyWriter writer;
    if (session.peer()) writer.put_u64(static_cast<std::uint64_t>(session.peer()->pid)).put_u64(session.peer()->uid);
    writer.put_string(session.peer_name());
    co_return Reply(std::move(writer));
  }
};

TEST_P(UnixConnectTest, TellsAHandlerWhoThePeerIs) {
  PeerAsking handler;
  const auto server = ChannelServer::start({.unix_path = path()}, handler);
  ASSERT_TRUE(server);
  const auto channel = Channel::connect({.carrier = Carrier::kUnix, .path = path()});
  const auto reply = (*channel)->call({.op = 1});
  ASSERT_TRUE(reply);
  BodyReader reader = reply->reader();
  EXPECT_EQ(reader.get_u64("pid"), static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(reader.get_u64("uid"), ::getuid());
  EXPECT_EQ(reader.get_string("name"), fmt::format("process {} of user {}", ::getpid(), ::getuid()));
}

}  // namespace
}  // namespace nmc::net
