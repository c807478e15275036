// A client whose master lies, stalls or leaves, and a master at whose port strangers call: each is a code, or a closed
// connection, in time; never a crash, a write beyond the caller's memory, or a success that is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/rng.h"
#include "net/channel_test_support.h"
#include "store/client.h"
#include "store/node_server.h"
#include "store/protocol.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using net::BodyWriter;
using net::Bytes;
using net::Carrier;
using net::RawPeer;
using net::ScriptedServer;
using ::testing::AllOf;
using ::testing::Each;

constexpr std::size_t kMiB = 1 << 20;

ClientOptions options_for(const net::Address& address) {
  ClientOptions options;
  options.server = address.to_string();
  options.shared_memory = false;
  return options;
}

// Answers each message as it is told to.
class LyingMaster final : public net::MessageHandler {
 public:
  using Answer = std::function<net::Reply(Op op, net::Request& request)>;

  explicit LyingMaster(Answer answer) : answer_(std::move(answer)) {
    server_ = net::ChannelServer::start({.tcp_host = "127.0.0.1"}, *this).value();
  }
  ~LyingMaster() override { server_.reset(); }

  std::unique_ptr<Client> connect() {
    auto client = Client::connect(options_for({.host = "127.0.0.1", .port = server_->tcp_port()}));
    EXPECT_TRUE(client) << client.error().message;
    return client ? *std::move(client) : nullptr;
  }
  std::uint64_t connections() const { return server_->stats().accepted; }

 private:
  boost::asio::awaitable<net::Reply> handle(net::Session&, net::Request& request) override {
    const Op op = static_cast<Op>(request.op);
    if (op == Op::kPing) co_return net::Reply();
    co_return answer_(op, request);
  }

  const Answer answer_;
  std::unique_ptr<net::ChannelServer> server_;
};

net::Reply reply_with(std::initializer_list<ReadAnswer> answers, std::size_t payload_bytes = 0) {
  BodyWriter body;
  for (const ReadAnswer& answer : answers) put_answer(body, answer);
  net::Reply reply(std::move(body));
  if (payload_bytes == 0) return reply;
  const auto payload = std::make_shared<Bytes>(payload_bytes, std::byte{'x'});
  reply.payload.push_back(*payload);
  reply.keep_alive = payload;
  return reply;
}

constexpr Outcome kTooLarge = outcome_of(StoreCode::kInvalidParams);
constexpr Outcome kCorrupt = outcome_of(StoreCode::kChecksumMismatch);

// What read() and view() come to, with memory around the caller's watched.
struct Outcomes {
  Outcome read = 0, view = 0;
};
Outcomes outcomes_with(const LyingMaster::Answer& answer, std::size_t room = 1000) {
  LyingMaster master(answer);
  const auto client = master.connect();
  if (client == nullptr) return {};
  Bytes memory(room + 2000, std::byte{'.'});
  Outcomes outcomes;
  outcomes.read = client->read("key", std::span(memory).subspan(1000, room));
  EXPECT_THAT(std::span(memory).first(1000), Each(std::byte{'.'}));
  EXPECT_THAT(std::span(memory).last(1000), Each(std::byte{'.'}));
  Client::View view;
  outcomes.view = client->view("key", view);
  return outcomes;
}

TEST(LyingMaster, MoreBytesThanWereAskedForAreRefused) {
  const auto outcomes = outcomes_with([](Op, net::Request&) { return reply_with({{1001, 1001, 7}}, 1001); });
  EXPECT_EQ(outcomes.read, kCorrupt);
  EXPECT_EQ(outcomes.view, 0);  // whoever asks for all takes what there is
}

TEST(LyingMaster, ASizeThatIsNotThatOfWhatComesIsRefused) {
  for (const auto& [outcome, bytes, payload] :
       std::vector<std::tuple<Outcome, std::uint64_t, std::size_t>>{{500, 500, 400}, {500, 500, 0}, {500, 400, 500}}) {
    const auto outcomes = outcomes_with([&](Op, net::Request&) { return reply_with({{outcome, bytes, 7}}, payload); });
    EXPECT_EQ(outcomes.read, kCorrupt) << payload;
    EXPECT_EQ(outcomes.view, kCorrupt) << payload;
  }
}

TEST(LyingMaster, AnswersTooFewOrTooManyAreRefused) {
  EXPECT_EQ(outcomes_with([](Op, net::Request&) { return net::Reply(); }).read, kCorrupt);
  EXPECT_EQ(outcomes_with([](Op, net::Request&) { return reply_with({{5, 5, 7}, {5, 5, 7}}, 5); }).read, kCorrupt);
}

// Nobody has that much memory; the process must live on.
TEST(LyingMaster, AnObjectLargerThanAnyMemoryIsACode) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 60, UINT64_MAX, (std::uint64_t{1} << 63) - 1}) {
    const auto outcomes = outcomes_with([&](Op, net::Request&) { return reply_with({{kTooLarge, bytes, 7}}); });
    EXPECT_EQ(outcomes.read, kCorrupt);
    EXPECT_EQ(outcomes.view, kCorrupt);
  }
}

std::size_t memory_peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

// Addresses may be had for it; memory is taken only as bytes come.
TEST(LyingMaster, AnObjectThatIsAnnouncedButDoesNotComeTakesNoMemory) {
  const std::uint64_t bytes = std::uint64_t{4} << 30;
  const std::size_t before = memory_peak_bytes();
  const auto outcomes = outcomes_with([&](Op, net::Request& request) -> net::Reply {
    const std::uint32_t count = request.body.get_count("reads", kReadBytesMin);
    if (count == 1 && get_read(request.body).whole) return reply_with({{kTooLarge, bytes, 7}});
    return Error{ErrorCode::kIo, "the disk is gone"};
  });
  EXPECT_EQ(outcomes.read, kTooLarge);
  EXPECT_LT(outcomes.view, 0);
#if !defined(NMC_SANITIZED)  // a sanitizer keeps book of all of it
  EXPECT_LT(memory_peak_bytes() - before, 256 * kMiB);
#else
  (void)before;
#endif
}

TEST(LyingMaster, AnObjectThatIsAlwaysAnotherOneEndsAsAMissOrACode) {
  std::atomic<int> asked{0};
  const auto outcomes = outcomes_with(
      [&](Op, net::Request& request) -> net::Reply {
        ++asked;
        const std::uint32_t count = request.body.get_count("reads", kReadBytesMin);
        BodyWriter body;
        for (std::uint32_t i = 0; i < count; ++i) {
          const ReadOnWire read = get_read(request.body);
          put_answer(body, {.outcome = read.whole ? kTooLarge : outcome_of(StoreCode::kObjectNotFound),
                            .bytes = read.whole ? 5 * kMiB : 0,
                            .generation = read.whole ? 7u : 0u});
        }
        return net::Reply(std::move(body));
      },
      8 * kMiB);
  EXPECT_LT(outcomes.read, 0);
  EXPECT_LT(outcomes.view, 0);
  EXPECT_LT(asked.load(), 50);
}

TEST(LyingMaster, ListsThatCountMoreThanTheyHoldAreRefused) {
  LyingMaster master([](Op op, net::Request&) -> net::Reply {
    BodyWriter body;
    if (op == Op::kReplicas) body.put_u32(1'000'000).put_string("segment");
    return net::Reply(std::move(body));
  });
  const auto client = master.connect();
  std::vector<ReplicaInfo> replicas;
  EXPECT_EQ(client->replicas("key", replicas), kCorrupt);
  EXPECT_EQ(client->exists("key"), kCorrupt);
  EXPECT_EQ(client->size_of("key"), kCorrupt);
  EXPECT_EQ(client->put("key", std::as_bytes(std::span("value"))), kCorrupt);
  EXPECT_EQ(client->remove("key"), kCorrupt);
  EXPECT_EQ(client->remove_all(true), kCorrupt);
}

// ---- stalls and ends within the bytes ----

// Answers a read of 64 MiB as if it were one piece: `sent` bytes of it, then `then`.
class HalfMaster {
 public:
  static constexpr std::size_t kBytes = 64 * kMiB;

  HalfMaster(std::size_t sent, std::function<void(RawPeer&)> then)
      : server_(Carrier::kTcp, [sent, then = std::move(then)](RawPeer& peer) {
          ASSERT_TRUE(peer.greet_as_server());
          const auto ping = peer.receive();
          ASSERT_TRUE(ping && peer.send(net::frame_bytes({.op = static_cast<std::uint16_t>(Op::kPing),
                                                          .request_id = ping->first.request_id})));
          const auto request = peer.receive();
          ASSERT_TRUE(request);
          BodyWriter body;
          put_answer(body, {.outcome = static_cast<Outcome>(kBytes), .bytes = kBytes, .generation = 7});
          net::FrameHeader header = request->first;
          header.body_bytes = static_cast<std::uint32_t>(body.bytes().size());
          header.payload_bytes = kBytes;
          const auto head = net::encode_frame_header(header);
          peer.send(head);
          peer.send(body.bytes());
          peer.send(Bytes(sent, std::byte{'x'}));
          then(peer);
        }) {}

  // A range: that comes as one piece.
  Outcome read(std::span<std::byte> to, Nanos progress) {
    ClientOptions options = options_for(server_.address());
    options.progress_deadline = progress;
    options.connect_deadline = 200ms;
    client_ = Client::connect(options).value();
    const Client::Range range{.offset = 0, .to = to};
    Outcome outcome = 0;
    client_->read_ranges("key", std::span(&range, 1), std::span(&outcome, 1));
    return outcome;
  }
  Client& client() { return *client_; }

 private:
  ScriptedServer server_;
  std::unique_ptr<Client> client_;
};

TEST(StalledMaster, AReadThatStandsStillEndsWithTheDeadlineAndItsMemoryIsTheCallersAgain) {
  net::Signal returned;
  Bytes to(HalfMaster::kBytes, std::byte{'.'});
  HalfMaster master(kMiB, [&](RawPeer& peer) {
    ASSERT_TRUE(returned.wait());
    peer.send(Bytes(kMiB, std::byte{'y'}));  // too late for anybody
    EXPECT_TRUE(peer.at_end());
  });
  const Stopwatch stopwatch;
  EXPECT_EQ(master.read(to, 200ms), outcome_of(StoreCode::kRpcTimeout));
  EXPECT_LT(stopwatch.elapsed(), 5s);
  std::fill(to.begin(), to.end(), std::byte{'.'});
  returned.raise();
  // The connection isn't used again: the next call looks for a new one, and nobody takes it.
  EXPECT_LT(master.client().exists("key"), 0);
  EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](std::byte byte) { return byte == std::byte{'.'}; }));
}

TEST(StalledMaster, AReadThatEndsInTheMiddleIsAnErrorNeverAShortSuccess) {
  for (const std::size_t sent : {std::size_t{0}, std::size_t{1}, kMiB, HalfMaster::kBytes - 1}) {
    Bytes to(HalfMaster::kBytes);
    HalfMaster master(sent, [](RawPeer& peer) { peer.close(); });
    EXPECT_LT(master.read(to, 2s), 0) << sent;
  }
}

TEST(StalledMaster, AnotherVersionOfTheProtocolIsNamed) {
  const ScriptedServer server(Carrier::kTcp, [](RawPeer& peer) {
    ASSERT_TRUE(peer.receive());
    peer.send(net::patched(net::frame_bytes({.op = net::kOpHello}, net::encode_greeting({})), 4, std::uint16_t{9}));
    peer.at_end();
  });
  const auto client = Client::connect(options_for(server.address()));
  ASSERT_FALSE(client);
  EXPECT_EQ(store_code_for(client.error()), StoreCode::kInvalidVersion);
  EXPECT_THAT(client.error().message, AllOf(::testing::HasSubstr("version 9"), ::testing::HasSubstr("version 1")));
}

// ---- strangers at the port ----

TEST(Strangers, AtThePortOfAMasterAreClosedAndClientsGoOn) {
  const TemporaryFolder folder = TemporaryFolder::create("nmc-strangers").value();
  NodeServerOptions options;
  options.folder = folder.path() / "store";
  options.core.entries = {64, 1024};
  options.tcp_host = "127.0.0.1";
  const auto server = NodeServer::start(options).value();
  const net::Address address{.host = "127.0.0.1", .port = server->tcp_port()};
  ClientOptions client_options = options_for(address);
  client_options.segment_bytes = 4 * kMiB;
  const auto client = Client::connect(client_options).value();

  Rng rng(5);
  for (int i = 0; i < 50; ++i) {
    Bytes noise(1 + rng.next() % 3000);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(rng.next());
    RawPeer peer = RawPeer::connect(address);
    peer.send(i == 0 ? Bytes(4096, std::byte{0}) : noise);
    EXPECT_TRUE(peer.at_end());
  }
  RawPeer browser = RawPeer::connect(address);
  browser.send(as_bytes("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(browser.at_end());
  // In good standing, but what it says makes no sense.
  for (std::uint16_t op = 0; op < 25; ++op) {
    RawPeer peer = RawPeer::connect(address);
    ASSERT_TRUE(peer.greet_as_client());
    Bytes noise(64);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(rng.next());
    peer.send(net::frame_bytes({.op = op, .request_id = 1}, noise));
    const auto reply = peer.receive();
    ASSERT_TRUE(reply) << op;
  }

  EXPECT_EQ(client->put("key", std::as_bytes(std::span("value", 5))), 0);
  EXPECT_EQ(client->exists("key"), 1);
}

}  // namespace
}  // namespace nmc::store
