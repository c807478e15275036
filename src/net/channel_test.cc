// Client and server together, over both carriers: what they do for each other when nobody misbehaves.
#include "net/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/failpoint.h"
#include "net/channel_test_support.h"
#include "net/raw_client.h"

namespace nmc::net {
namespace {

using ::testing::HasSubstr;

class ChannelTest : public ::testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override { start(); }
  void TearDown() override { disarm_failpoints(); }

  void start(ChannelServerOptions options = {}) {
    server_.reset();
    if (GetParam() == Carrier::kUnix) {
      options.unix_path = (folder_.path() / "socket").string();
    } else {
      options.tcp_host = "127.0.0.1";
    }
    auto server = ChannelServer::start(options, handler_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    address_ = {
        .carrier = GetParam(), .path = options.unix_path, .host = options.tcp_host, .port = server_->tcp_port()};
  }

  std::unique_ptr<Channel> connect(ChannelOptions options = {}) {
    auto channel = Channel::connect(address_, options);
    EXPECT_TRUE(channel) << channel.error().message;
    return channel ? std::move(*channel) : nullptr;
  }

  // The largest payload of a message with a small body.
  std::size_t payload_max() const { return GetParam() == Carrier::kUnix ? kDatagramBytesMax - 128 : 64 << 20; }

  static Bytes generate_body(std::uint64_t size, std::uint64_t seed, std::uint32_t pieces = 1) {
    return Bytes(std::move(BodyWriter().put_u64(size).put_u64(seed).put_u32(pieces)).take());
  }

  TemporaryFolder folder_ = TemporaryFolder::create().value();
  TestHandler handler_;
  std::unique_ptr<ChannelServer> server_;
  Address address_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, ChannelTest, ::testing::Values(Carrier::kUnix, Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(ChannelTest, CarriesBodiesThereAndBack) {
  const auto channel = connect();
  for (const std::size_t size : {0, 1, 31, 5000, 100'000}) {
    const Bytes body = pattern(size);
    const auto reply = channel->call({.op = kEcho, .body = body});
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(Bytes(reply->body.begin(), reply->body.end()), body);
    EXPECT_EQ(reply->payload_bytes, 0u);
  }
}

TEST_P(ChannelTest, CarriesPayloadsOfAnySizeToTheServer) {
  const auto channel = connect();
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{4095}, std::size_t{16'384}, std::size_t{70'002}, payload_max()}) {
    const Bytes payload = pattern(size, size);
    const ByteSpan whole(payload);
    const auto reply = channel->call({.op = kDigest, .body = as_bytes("x"), .payload = {&whole, 1}});
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->reader().get_u64("digest"), checksum64(payload)) << size;
  }
}

TEST_P(ChannelTest, CarriesPayloadsOfAnySizeToTheClient) {
  const auto channel = connect();
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{4095}, std::size_t{16'384}, std::size_t{70'002}, payload_max()}) {
    Bytes to(size + 1, std::byte{0x5a});
    const MutableByteSpan room(to);
    const auto reply = channel->call({.op = kGenerate, .body = generate_body(size, 7)}, place_into({&room, 1}));
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->payload_bytes, size);
    EXPECT_EQ(to.back(), std::byte{0x5a}) << "written beyond the payload";
    to.pop_back();
    EXPECT_EQ(checksum64(to), checksum64(pattern(size, 7))) << size;
  }
}

TEST_P(ChannelTest, GathersAndScattersPayloadsOfManyPieces) {
  const auto channel = connect();
  const Bytes sent = pattern(60'000, 3);
  std::vector<ByteSpan> from;
  for (std::size_t at = 0; at < sent.size(); at += 100) from.push_back(ByteSpan(sent).subspan(at, 100));
  from.insert(from.begin() + 5, ByteSpan());  // empty ones, too
  Bytes received(sent.size() + 50);
  std::vector<MutableByteSpan> to{MutableByteSpan()};
  for (std::size_t at = 0; at < received.size(); at += 350) {
    to.push_back(MutableByteSpan(received).subspan(at, std::min<std::size_t>(350, received.size() - at)));
  }
  const auto reply = channel->call({.op = kEcho, .payload = from}, place_into(to));
  ASSERT_TRUE(reply) << reply.error().message;
  received.resize(sent.size());
  EXPECT_EQ(received, sent);

  Bytes generated(5000);
  const MutableByteSpan room(generated);
  ASSERT_TRUE(channel->call({.op = kGenerate, .body = generate_body(5000, 9, 300)}, place_into({&room, 1})));
  EXPECT_EQ(generated, pattern(5000, 9));
}

TEST_P(ChannelTest, ShowsTheBodyToWhoPlacesThePayload) {
  const auto channel = connect();
  const Bytes payload = pattern(1000);
  const ByteSpan whole(payload);
  Bytes to;
  MutableByteSpan room;
  const auto place = [&](ByteSpan body, std::uint64_t bytes) -> Result<std::span<const MutableByteSpan>> {
    EXPECT_EQ(BodyReader(body).get_string("name"), "which object");
    to.resize(bytes);
    room = to;
    return std::span<const MutableByteSpan>(&room, 1);
  };
  BodyWriter body;
  body.put_string("which object");
  const auto reply = channel->call({.op = kEcho, .body = body.bytes(), .payload = {&whole, 1}}, place);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(to, payload);
}

TEST_P(ChannelTest, AnswersWhatIsSentAheadInOrder) {
  const auto channel = connect();
  constexpr std::uint64_t kAhead = 100;
  for (std::uint64_t i = 0; i < kAhead; ++i) {
    const Result<void> sent = channel->send({.op = kGenerate, .body = generate_body(i, i)});
    ASSERT_TRUE(sent) << sent.error().message;
  }
  EXPECT_EQ(channel->in_flight(), kAhead);
  for (std::uint64_t i = 0; i < kAhead; ++i) {
    Bytes to(i);
    const MutableByteSpan room(to);
    const auto reply = channel->receive(place_into({&room, 1}));
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(to, pattern(i, i));
  }
  EXPECT_EQ(channel->in_flight(), 0u);
}

TEST_P(ChannelTest, PassesOnAHandlersErrorAndGoesOn) {
  const auto channel = connect();
  const auto failed = channel->call({.op = kFail});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(failed.error().message, "no such thing");
  EXPECT_TRUE(channel->usable());
  EXPECT_TRUE(channel->call({.op = kEcho}));
}

TEST_P(ChannelTest, DropsAPayloadThatTheHandlerLeavesUnread) {
  const auto channel = connect();
  for (const std::size_t size : {std::size_t{1}, std::size_t{70'000}, payload_max()}) {
    const Bytes payload(size);
    const ByteSpan whole(payload);
    ASSERT_TRUE(channel->call({.op = kIgnore, .payload = {&whole, 1}})) << size;
    ASSERT_FALSE(channel->call({.op = kFail, .payload = {&whole, 1}})) << size;
    const auto reply = channel->call({.op = kEcho, .body = as_bytes("still in step")});
    ASSERT_TRUE(reply) << size;
    EXPECT_EQ(reply->body.size(), 13u);
  }
}

TEST_P(ChannelTest, DropsARefusedPayloadAndGoesOn) {
  const auto channel = connect();
  const auto unexpected = channel->call({.op = kGenerate, .body = generate_body(50'000, 1)});
  ASSERT_FALSE(unexpected);
  EXPECT_THAT(unexpected.error().message, HasSubstr("50000 bytes"));
  Bytes small(100);
  const MutableByteSpan room(small);
  const auto too_small = channel->call({.op = kGenerate, .body = generate_body(101, 1)}, place_into({&room, 1}));
  ASSERT_FALSE(too_small);
  EXPECT_EQ(too_small.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(channel->usable());
  EXPECT_TRUE(channel->call({.op = kEcho}));
}

TEST_P(ChannelTest, RefusesWhatDoesNotFitBeforeSendingIt) {
  const auto channel = connect();
  const Bytes much(GetParam() == Carrier::kUnix ? kDatagramBytesMax : FrameLimits{}.body_bytes_max + 1);
  const auto refused = channel->call({.op = kEcho, .body = much});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(channel->counters().values().messages_sent, 0u);
  EXPECT_TRUE(channel->call({.op = kEcho}));
}

TEST_P(ChannelTest, TellsTheClientWhatTheCarrierCannotReturn) {
  const auto channel = connect();
  // More than a datagram; descriptors over TCP.
  const bool is_unix = GetParam() == Carrier::kUnix;
  const auto refused = is_unix ? channel->call({.op = kGenerate, .body = generate_body(kDatagramBytesMax, 1)})
                               : channel->call({.op = kPassFds, .body = BodyWriter().put_u32(1).bytes()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr(is_unix ? "131072" : "over TCP"));
  EXPECT_TRUE(channel->call({.op = kEcho}));
}

TEST_P(ChannelTest, CountsMessagesAndPayloadAtBothEnds) {
  auto channel = connect();
  EXPECT_EQ(channel->counters().values().messages_sent, 0u) << "the handshake doesn't count";
  const Bytes payload(1000);
  const ByteSpan whole(payload);
  Bytes to(1000);
  const MutableByteSpan room(to);
  ASSERT_TRUE(channel->call({.op = kEcho, .body = as_bytes("x"), .payload = {&whole, 1}}, place_into({&room, 1})));
  ASSERT_TRUE(channel->call({.op = kIgnore, .payload = {&whole, 1}}));
  ASSERT_FALSE(channel->call({.op = kFail}));
  const auto here = channel->counters().values();
  EXPECT_EQ(here.messages_sent, 3u);
  EXPECT_EQ(here.payload_bytes_sent, 2000u);
  EXPECT_EQ(here.messages_received, 3u);
  EXPECT_EQ(here.payload_bytes_received, 1000u);
  channel.reset();
  ASSERT_TRUE(handler_.closed.wait());
  const auto there = handler_.last_counters();
  EXPECT_EQ(there.messages_received, 3u);
  EXPECT_EQ(there.payload_bytes_received, 2000u);
  EXPECT_EQ(there.messages_sent, 3u);
  EXPECT_EQ(there.payload_bytes_sent, 1000u);
}

TEST_P(ChannelTest, KeepsAHandlersStateForEachSession) {
  const auto one = connect(), other = connect();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(one->call({.op = kCountCalls})->reader().get_u64("count"), i);
  }
  EXPECT_EQ(other->call({.op = kCountCalls})->reader().get_u64("count"), 1u);
}

TEST_P(ChannelTest, OpensAndClosesEachSessionOnce) {
  auto one = connect(), other = connect();
  ASSERT_TRUE(handler_.opened.wait(2));
  one.reset();
  ASSERT_TRUE(handler_.closed.wait(1));
  server_.reset();
  EXPECT_TRUE(handler_.closed.wait(2, Nanos::zero()));
  EXPECT_FALSE(handler_.closed.wait(3, Nanos::zero()));
  const auto late = other->call({.op = kEcho});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
}

TEST_P(ChannelTest, SaysWhyItIsUnusable) {
  const auto channel = connect();
  server_.reset();
  const auto first = channel->call({.op = kEcho});
  ASSERT_FALSE(first);
  EXPECT_THAT(first.error().message, HasSubstr(address_.to_string()));
  EXPECT_FALSE(channel->usable());
  const auto second = channel->call({.op = kEcho});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr(first.error().message));
}

TEST_P(ChannelTest, ClosesTheSessionThatAHandlerCloses) {
  const auto channel = connect();
  EXPECT_FALSE(channel->call({.op = kCloseSession}).has_value() && channel->call({.op = kEcho}).has_value());
  EXPECT_TRUE(handler_.closed.wait());
}

TEST_P(ChannelTest, InterruptEndsAWaitingCall) {
  const auto channel = connect();
  std::thread other([&] {
    EXPECT_TRUE(handler_.hanging.wait());
    channel->interrupt();
  });
  const auto reply = channel->call({.op = kHang});
  other.join();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(channel->usable());
}

TEST_P(ChannelTest, StoppingTheServerCancelsWhatAHandlerWaitsFor) {
  const auto channel = connect();
  ASSERT_TRUE(channel->send({.op = kHang}));
  ASSERT_TRUE(handler_.hanging.wait());
  const Stopwatch stopwatch;
  server_.reset();
  EXPECT_LT(stopwatch.elapsed(), kTestPatience / 2);
  EXPECT_FALSE(channel->receive());
}

TEST_P(ChannelTest, AHandlerThatTakesTooLongIsAnError) {
  const auto channel = connect();
  const auto reply = channel->call({.op = kHang}, nullptr, std::chrono::milliseconds(50));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_P(ChannelTest, ManyClientsAreServedAtOnce) {
  start({.unix_loops = 3, .tcp_loops = 3});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([this, t] {
      const auto channel = connect();
      ASSERT_NE(channel, nullptr);
      for (std::uint64_t i = 0; i < 200; ++i) {
        Bytes to(i * 31);
        const MutableByteSpan room(to);
        ASSERT_TRUE(channel->call({.op = kGenerate, .body = generate_body(to.size(), t)}, place_into({&room, 1})));
        ASSERT_EQ(checksum64(to), checksum64(pattern(to.size(), t)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ChannelTest, AConnectionGoesToTheLoopThatHasLeastToDo) {
  start({.unix_loops = 2, .tcp_loops = 2});
  const auto thread_of = [](Channel& channel) { return channel.call({.op = kThread})->reader().get_u64("thread"); };
  const auto one = connect(), other = connect();
  ASSERT_NE(thread_of(*one), thread_of(*other)) << "in turn, as long as none has anything to do";
  const std::uint64_t busy = thread_of(*one);
  ASSERT_TRUE(one->send({.op = kHang}));
  ASSERT_TRUE(handler_.hanging.wait());
  std::vector<std::unique_ptr<Channel>> more;
  for (int i = 0; i < 4; ++i) {
    more.push_back(connect());
    EXPECT_NE(thread_of(*more.back()), busy) << i;
  }
}

TEST_P(ChannelTest, TellsOneTooManyThatItIs) {
  start({.connections_max = 2});
  auto one = connect(), two = connect();
  const auto three = Channel::connect(address_);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(three.error().message, HasSubstr("all 2 connections"));
  EXPECT_EQ(server_->stats().refused, 1u);
  EXPECT_TRUE(one->call({.op = kEcho}));
  two.reset();
  ASSERT_TRUE(handler_.closed.wait());
  // The place is free soon after on_close.
  const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
  while (server_->stats().connections > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(connect()->call({.op = kEcho}));
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

TEST_P(ChannelTest, ThousandsOfConnectionsLeaveNoDescriptorBehind) {
  connect();
  ASSERT_TRUE(handler_.closed.wait(1));
  const std::size_t before = open_descriptors();
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    const auto channel = connect();
    ASSERT_NE(channel, nullptr);
    if (i % 3 == 0) {
      ASSERT_TRUE(channel->call({.op = kEcho}));
    }
  }
  ASSERT_TRUE(handler_.closed.wait(kRounds + 1));
  const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
  while (open_descriptors() > before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_LE(open_descriptors(), before);
}

#if !defined(NMC_FAILPOINTS_OFF)
TEST_P(ChannelTest, FailsWhereItIsToldTo) {
  for (const char* place : {"net.send", "net.receive", "net.reply"}) {
    const auto channel = connect();
    ASSERT_TRUE(channel->call({.op = kEcho}));
    arm_failpoint(place, FailpointAction::kError);
    const auto failed = channel->call({.op = kEcho});
    ASSERT_FALSE(failed) << place;
    EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable) << place;
    EXPECT_FALSE(channel->usable()) << place;
    EXPECT_EQ(failpoint_fired(place), 1u) << place;
  }
}
#endif

class UnixChannelTest : public ChannelTest {};
INSTANTIATE_TEST_SUITE_P(Unix, UnixChannelTest, ::testing::Values(Carrier::kUnix),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(UnixChannelTest, PassesDescriptorsThatCloseOnExec) {
  const auto channel = connect();
  for (const std::uint32_t count : {1u, 3u, static_cast<std::uint32_t>(kDatagramFdsMax)}) {
    const auto reply = channel->call({.op = kPassFds, .body = BodyWriter().put_u32(count).bytes()});
    ASSERT_TRUE(reply) << reply.error().message;
    ASSERT_EQ(reply->fds.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const int fd = reply->fds[i].get();
      EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
      char text[16] = {};
      EXPECT_GT(::read(fd, text, sizeof text), 0);
      EXPECT_EQ(text, fmt::format("fd {}", i));
    }
  }
  const auto too_many = channel->call({.op = kPassFds, .body = BodyWriter().put_u32(kDatagramFdsMax + 1).bytes()});
  ASSERT_FALSE(too_many);
  EXPECT_THAT(too_many.error().message, HasSubstr("17 descriptors"));
}

class TcpChannelTest : public ChannelTest {};
INSTANTIATE_TEST_SUITE_P(Tcp, TcpChannelTest, ::testing::Values(Carrier::kTcp),
                         [](const auto& instance) { return carrier_name(instance.param); });

TEST_P(TcpChannelTest, ALargeRefusedPayloadCostsTheChannel) {
  const auto channel = connect();
  const auto refused = channel->call({.op = kGenerate, .body = generate_body(Channel::kSkipBytesMax + 1, 1)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(channel->usable());
}

TEST_P(TcpChannelTest, ReadsFramesThatArriveInAnyPieces) {
  Bytes conversation = frame_bytes({.op = kOpHello}, encode_hello({}));
  const Bytes payload = pattern(40);
  for (const Bytes& frame : {frame_bytes({.op = kEcho, .request_id = 1}, as_bytes("body"), payload),
                             frame_bytes({.op = kIgnore, .request_id = 2}, {}, payload),
                             frame_bytes({.op = kEcho, .request_id = 3}, as_bytes("end"))}) {
    conversation.insert(conversation.end(), frame.begin(), frame.end());
  }
  const std::string_view text(reinterpret_cast<const char*>(conversation.data()), conversation.size());
  const std::size_t answers = 4 * kFrameHeaderBytes + 33 + (4 + 40) + 0 + 3;
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{31}, text.size()}) {
    RawClient client(address_.port);
    ASSERT_TRUE(client.send_in_pieces(text, piece)) << piece;
    const std::string answer = client.read_bytes(answers);
    EXPECT_EQ(answer.size(), answers) << piece;
    EXPECT_THAT(answer, ::testing::EndsWith("end")) << piece;
  }
}

TEST_P(TcpChannelTest, ServesBothCarriersAtOnce) {
  const std::string path = (folder_.path() / "both").string();
  start({.unix_path = path});
  const auto tcp = connect();
  const auto local = Channel::connect({.carrier = Carrier::kUnix, .path = path});
  ASSERT_TRUE(local) << local.error().message;
  EXPECT_TRUE(tcp->call({.op = kEcho}));
  EXPECT_TRUE((*local)->call({.op = kEcho}));
  EXPECT_EQ(server_->stats().connections, 2u);
}

}  // namespace
}  // namespace nmc::net
