// Peers that lie, stall, trickle or leave: each is an error within its deadline, never a crash, a hang or a success.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

#include "net/channel_test_support.h"

namespace nmc::net {
namespace {

using ::testing::HasSubstr;

constexpr auto kShort = std::chrono::milliseconds(100);
constexpr std::uint16_t kOp = 3;
constexpr std::uint64_t kFirstId = 1;

class ChannelPeersTest : public ::testing::TestWithParam<Carrier> {
 protected:
  // A call to a server that greets properly and then plays `answer`, once it has the request.
  static Error failure_with(ScriptedServer::Script answer, ChannelOptions options = {}) {
    const ScriptedServer server(GetParam(), [&](RawPeer& peer) {
      ASSERT_TRUE(peer.greet_as_server());
      ASSERT_TRUE(peer.receive());
      answer(peer);
    });
    auto channel = Channel::connect(server.address(), options);
    EXPECT_TRUE(channel) << channel.error().message;
    if (!channel) return {};
    Bytes to(1000);
    const MutableByteSpan room(to);
    const auto reply = (*channel)->call({.op = kOp}, place_into({&room, 1}));
    EXPECT_FALSE(reply);
    EXPECT_FALSE((*channel)->usable());
    return reply ? Error{} : reply.error();
  }
  static Error failure_at(const Bytes& answer) {
    return failure_with([&](RawPeer& peer) {
      peer.send(answer);
      EXPECT_TRUE(peer.at_end());  // by the client, having seen through it
    });
  }
  static Bytes good_reply() { return frame_bytes({.op = kOp, .request_id = kFirstId}, as_bytes("body"), pattern(500)); }

  std::unique_ptr<ChannelServer> serve(ChannelServerOptions options = {}) {
    if (GetParam() == Carrier::kUnix) {
      options.unix_path = (folder_.path() / "socket").string();
    } else {
      options.tcp_host = "127.0.0.1";
    }
    auto server = ChannelServer::start(options, handler_);
    EXPECT_TRUE(server) << server.error().message;
    address_ = {
        .carrier = GetParam(), .path = options.unix_path, .host = options.tcp_host, .port = (*server)->tcp_port()};
    return std::move(*server);
  }
  // A client in good standing.
  RawPeer greeted() {
    RawPeer peer = RawPeer::connect(address_);
    EXPECT_TRUE(peer.greet_as_client());
    return peer;
  }

  TemporaryFolder folder_ = TemporaryFolder::create().value();
  TestHandler handler_;
  Address address_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, ChannelPeersTest, ::testing::Values(Carrier::kUnix, Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(ChannelPeersTest, AServerThatLiesInAnyFieldIsFoundOut) {
  const Bytes good = good_reply();
  EXPECT_EQ(failure_at(patched(good, 0, std::uint32_t{0x12345678})).code, ErrorCode::kCorrupt) << "magic";
  EXPECT_EQ(failure_at(patched(good, 4, std::uint16_t{3})).code, ErrorCode::kVersionMismatch) << "version";
  EXPECT_EQ(failure_at(patched(good, 6, std::uint16_t{kOp + 1})).code, ErrorCode::kCorrupt) << "op";
  EXPECT_EQ(failure_at(patched(good, 8, std::uint32_t{5})).code, ErrorCode::kCorrupt) << "status";
  EXPECT_EQ(failure_at(patched(good, 8, std::uint32_t{1})).code, ErrorCode::kCorrupt) << "an error with a payload";
  EXPECT_EQ(failure_at(patched(good, 12, UINT32_MAX)).code, ErrorCode::kCorrupt) << "body";
  EXPECT_EQ(failure_at(patched(good, 16, kFirstId + 1)).code, ErrorCode::kCorrupt) << "id";
  EXPECT_EQ(failure_at(patched(good, 24, UINT64_MAX)).code, ErrorCode::kCorrupt) << "payload";
}

TEST_P(ChannelPeersTest, AnErrorReplyThatIsMalformedIsStillAnErrorAndTheChannelGoesOn) {
  const ScriptedServer server(GetParam(), [&](RawPeer& peer) {
    ASSERT_TRUE(peer.greet_as_server());
    ASSERT_TRUE(peer.receive());
    peer.send(frame_bytes({.op = kOp, .status = FrameStatus::kError, .request_id = kFirstId}, as_bytes("?")));
    ASSERT_TRUE(peer.receive());
    peer.send(frame_bytes({.op = kOp, .request_id = kFirstId + 1}));
    EXPECT_TRUE(peer.at_end());
  });
  const auto channel = Channel::connect(server.address()).value();
  const auto reply = channel->call({.op = kOp});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(channel->call({.op = kOp}));
}

TEST_P(ChannelPeersTest, AServerThatSendsNothingRunsIntoTheProgressDeadline) {
  const Error silent = failure_with([](RawPeer& peer) { EXPECT_TRUE(peer.at_end()); }, {.progress_deadline = kShort});
  EXPECT_EQ(silent.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(silent.message, HasSubstr("100 ms"));
}

TEST_P(ChannelPeersTest, SignalsDoNotPutOffTheProgressDeadline) {
  struct sigaction ignoring {};
  ignoring.sa_handler = [](int) {};  // and no SA_RESTART: calls return with EINTR
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &ignoring, &before), 0);
  Signal done;
  std::thread disturber([&done, victim = ::pthread_self()] {
    while (!done.wait(1, std::chrono::milliseconds(5))) ::pthread_kill(victim, SIGUSR1);
  });
  const Stopwatch stopwatch;
  const Error silent = failure_with([](RawPeer& peer) { EXPECT_TRUE(peer.at_end()); }, {.progress_deadline = kShort});
  EXPECT_EQ(silent.code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(stopwatch.elapsed(), kTestPatience / 2);
  done.raise();
  disturber.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_P(ChannelPeersTest, AServerThatTakesNothingRunsIntoTheProgressDeadline) {
  Signal done;
  const ScriptedServer server(GetParam(), [&](RawPeer& peer) {
    ASSERT_TRUE(peer.greet_as_server());
    EXPECT_TRUE(done.wait());
  });
  const auto channel = Channel::connect(server.address(), {.progress_deadline = kShort}).value();
  const Bytes payload(100'000);
  const ByteSpan whole(payload);
  Result<void> sent;
  for (int i = 0; i < 1000 && sent; ++i) sent = channel->send({.op = kOp, .payload = {&whole, 1}});
  done.raise();
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(channel->usable());
}

TEST_P(ChannelPeersTest, AServerThatLeavesIsAnError) {
  const Error left = failure_with([](RawPeer& peer) { peer.close(); });
  EXPECT_EQ(left.code, ErrorCode::kUnavailable);
}

TEST_P(ChannelPeersTest, AClientThatLiesInAnyFieldIsClosed) {
  const auto server = serve();
  const Bytes good = frame_bytes({.op = kEcho, .request_id = 1}, as_bytes("body"), pattern(500));
  const std::pair<const char*, Bytes> lies[] = {
      {"magic", patched(good, 0, std::uint32_t{0x12345678})},
      {"version", patched(good, 4, std::uint16_t{3})},
      {"a reserved op", patched(good, 6, kOpHello)},
      {"an unknown status", patched(good, 8, std::uint32_t{5})},
      {"an error", frame_bytes({.op = kEcho, .status = FrameStatus::kError, .request_id = 1})},
      {"body", patched(good, 12, UINT32_MAX)},
      {"payload", patched(good, 24, UINT64_MAX)},
  };
  const auto bystander = Channel::connect(address_).value();
  int closed = 0;
  for (const auto& [what, bytes] : lies) {
    RawPeer liar = greeted();
    ASSERT_TRUE(liar.send(bytes)) << what;
    EXPECT_TRUE(liar.at_end()) << what;
    EXPECT_TRUE(handler_.closed.wait(++closed)) << what;
    EXPECT_TRUE(bystander->call({.op = kEcho})) << what;
  }
}

TEST_P(ChannelPeersTest, AClientThatTakesNoReplyIsClosed) {
  const auto server = serve({.progress_deadline = kShort});
  RawPeer greedy = greeted();
  const Bytes ask = frame_bytes({.op = kGenerate}, BodyWriter().put_u64(100'000).put_u64(1).put_u32(1).bytes());
  for (int i = 0; i < 1000; ++i) {
    if (!greedy.send(ask)) break;
  }
  EXPECT_TRUE(handler_.closed.wait());
}

TEST_P(ChannelPeersTest, AClientThatIsIdleStaysWelcome) {
  const auto server = serve({.progress_deadline = kShort});
  const auto idle = Channel::connect(address_).value();
  // Another runs into the deadline meanwhile.
  RawPeer slow = greeted();
  const Bytes ask = frame_bytes({.op = kGenerate}, BodyWriter().put_u64(100'000).put_u64(1).put_u32(1).bytes());
  for (int i = 0; i < 1000; ++i) {
    if (!slow.send(ask)) break;
  }
  ASSERT_TRUE(handler_.closed.wait());
  EXPECT_TRUE(idle->call({.op = kEcho}));
}

// Over a Unix socket a message comes whole or not at all; over TCP it may end anywhere.
class TcpPeersTest : public ChannelPeersTest {};
INSTANTIATE_TEST_SUITE_P(Tcp, TcpPeersTest, ::testing::Values(Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(TcpPeersTest, AReplyThatEndsEarlyIsAnErrorWhereverItEnds) {
  const Bytes good = good_reply();
  for (const std::size_t size : {std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{34}, std::size_t{36},
                                 std::size_t{37}, std::size_t{300}, good.size() - 1}) {
    const Error early = failure_with([&](RawPeer& peer) {
      peer.send(ByteSpan(good).first(size));
      peer.close();
    });
    EXPECT_EQ(early.code, ErrorCode::kUnavailable) << size;
  }
}

TEST_P(TcpPeersTest, AReplyThatStallsRunsIntoTheProgressDeadline) {
  const Bytes good = good_reply();
  for (const std::size_t size : {std::size_t{20}, std::size_t{34}, std::size_t{300}}) {
    const Error stalled = failure_with(
        [&](RawPeer& peer) {
          peer.send(ByteSpan(good).first(size));
          EXPECT_TRUE(peer.at_end());
        },
        {.progress_deadline = kShort});
    EXPECT_EQ(stalled.code, ErrorCode::kDeadlineExceeded) << size;
  }
}

TEST_P(TcpPeersTest, AReplyThatTricklesArrives) {
  constexpr auto kProgress = std::chrono::milliseconds(500);
  const Bytes payload = pattern(25);
  const ScriptedServer server(GetParam(), [&](RawPeer& peer) {
    ASSERT_TRUE(peer.greet_as_server());
    ASSERT_TRUE(peer.receive());
    Signal never;
    for (const std::byte byte : frame_bytes({.op = kOp, .request_id = kFirstId}, {}, payload)) {
      ASSERT_TRUE(peer.send({&byte, 1}));
      EXPECT_FALSE(never.wait(1, std::chrono::milliseconds(10)));  // time has to pass: that is the case
    }
    EXPECT_TRUE(peer.at_end());
  });
  auto channel = Channel::connect(server.address(), {.progress_deadline = kProgress}).value();
  Bytes to(payload.size());
  const MutableByteSpan room(to);
  const Stopwatch stopwatch;
  const auto reply = channel->call({.op = kOp}, place_into({&room, 1}));
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_GT(stopwatch.elapsed(), kProgress) << "too fast to tell anything";
  EXPECT_EQ(to, payload);
}

TEST_P(TcpPeersTest, ARequestThatStallsIsClosed) {
  const auto server = serve({.progress_deadline = kShort});
  const Bytes good = frame_bytes({.op = kEcho, .request_id = 1}, as_bytes("body"), pattern(500));
  int closed = 0;
  for (const std::size_t size : {std::size_t{2}, std::size_t{20}, std::size_t{34}, std::size_t{300}}) {
    RawPeer peer = greeted();
    ASSERT_TRUE(peer.send(ByteSpan(good).first(size)));
    EXPECT_TRUE(peer.at_end()) << size;
    EXPECT_TRUE(handler_.closed.wait(++closed)) << size;
  }
}

TEST_P(TcpPeersTest, ARequestThatEndsEarlyIsClosed) {
  const auto server = serve();
  const Bytes good = frame_bytes({.op = kDigest, .request_id = 1}, as_bytes("body"), pattern(500));
  int closed = 0;
  for (const std::size_t size : {std::size_t{2}, std::size_t{20}, std::size_t{34}, std::size_t{300}}) {
    RawPeer peer = greeted();
    ASSERT_TRUE(peer.send(ByteSpan(good).first(size)));
    peer.close();
    EXPECT_TRUE(handler_.closed.wait(++closed)) << size;
  }
}

}  // namespace
}  // namespace nmc::net
