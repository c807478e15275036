// What others do, and what may happen to client and server, while a segment is being mounted.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <future>
#include <thread>

#include "base/failpoint.h"
#include "net/channel.h"
#include "store/client.h"
#include "store/node_server.h"
#include "store/protocol.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using net::BodyWriter;
using net::Channel;

constexpr std::uint64_t kMiB = 1 << 20;

class NodeMount : public ::testing::Test {
 protected:
  NodeMount() {
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {64, 1 << 12};
    options.tcp_host = "127.0.0.1";
    server_ = NodeServer::start(options).value();
  }
  ~NodeMount() override {
    release();
    disarm_failpoints();
  }

  std::string unix_address() const { return "unix:" + (folder_.path() / "store" / "socket").string(); }
  Result<std::unique_ptr<Client>> connect(std::uint64_t segment_bytes = 0, bool shared = true,
                                          std::string hostname = "host") {
    ClientOptions options;
    options.server = shared ? unix_address() : "127.0.0.1:" + std::to_string(server_->tcp_port());
    options.shared_memory = shared;
    options.segment_bytes = segment_bytes;
    options.hostname = std::move(hostname);
    return Client::connect(options);
  }
  std::unique_ptr<Channel> channel() { return Channel::connect(net::Address::parse(unix_address()).value()).value(); }

  // The next mount stands still where its memory was found.
  void hold_next_mount() {
    arm_failpoint("store.mount", FailpointAction::kCount, 1, [this] {
      arrived_.set_value();
      released_.get_future().wait();
    });
  }
  void wait_until_held() { arrived_.get_future().wait(); }
  void release() {
    if (!std::exchange(was_released_, true)) released_.set_value();
  }

  static Result<std::uint32_t> number_in(Result<Channel::Reply> reply) {
    if (!reply) return Failure(std::move(reply).error());
    return reply->reader().get_u32("number");
  }
  static Result<std::uint32_t> call(Channel& channel, Op op, const BodyWriter& body) {
    return number_in(channel.call({.op = static_cast<std::uint16_t>(op), .body = body.bytes()}));
  }
  static std::uint32_t join(Channel& channel) {
    BodyWriter body;
    body.put_string("host");
    return call(channel, Op::kJoin, body).value();
  }
  static Result<std::uint32_t> mount(Channel& channel) {
    BodyWriter body;
    body.put_u64(kMiB).put_string("host:1");
    return call(channel, Op::kMount, body);
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-mount").value();
  std::promise<void> arrived_, released_;
  bool was_released_ = false;
  std::unique_ptr<NodeServer> server_;
};

TEST_F(NodeMount, PutsAndReadsOfOthersGoOnMeanwhile) {
  const auto owner = connect(16 * kMiB).value();
  const std::unique_ptr<Client> others[] = {connect().value(), connect(0, /*shared=*/false).value()};
  hold_next_mount();
  auto mounting = std::async(std::launch::async, [&] { return connect(kMiB); });
  wait_until_held();
  auto using_it = std::async(std::launch::async, [&] {
    for (const auto& client : others) {
      for (const std::size_t bytes : {std::size_t{100}, std::size_t{200'000}}) {
        const std::string key = "k", value(bytes, 'v');
        EXPECT_EQ(client->put(key, std::as_bytes(std::span(value)), {}), 0);
        std::string read(bytes, '.');
        EXPECT_EQ(client->read(key, std::as_writable_bytes(std::span(read))), static_cast<Outcome>(bytes));
        EXPECT_EQ(read, value);
        EXPECT_EQ(client->remove(key, true), 0);
      }
    }
    EXPECT_TRUE(connect()) << "and others come";
  });
  EXPECT_EQ(using_it.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(mounting.wait_for(0s), std::future_status::timeout);
  release();
  EXPECT_TRUE(mounting.get());
}

TEST_F(NodeMount, ALargeSegmentMayTakeLongerThanOtherAnswers) {
  constexpr auto kDeadline = 500ms;
  arm_failpoint("store.mount", FailpointAction::kCount, 1, [&] { released_.get_future().wait_for(kDeadline + 200ms); });
  ClientOptions options;
  options.server = unix_address();
  options.segment_bytes = 1024 * kMiB;
  options.progress_deadline = kDeadline;
  const auto client = Client::connect(options);
  EXPECT_TRUE(client) << client.error().message;
}

// The one that is at it, and one that waits for its turn.
TEST_F(NodeMount, AServerThatStopsMeanwhileEndsInOrder) {
  const auto onlooker = connect().value();
  hold_next_mount();
  auto first = std::async(std::launch::async, [&] { return connect(kMiB); });
  wait_until_held();
  const auto second = channel();
  join(*second);
  BodyWriter body;
  body.put_u64(kMiB).put_string("host:2");
  ASSERT_TRUE(second->send({.op = static_cast<std::uint16_t>(Op::kMount), .body = body.bytes()}));
  auto stopping = std::async(std::launch::async, [&] { server_.reset(); });
  while (onlooker->healthy()) std::this_thread::yield();  // until sessions are being closed
  release();
  stopping.get();
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(second->receive());
}

TEST_F(NodeMount, AClientThatLeavesMeanwhileLeavesNoSegmentBehind) {
  const auto one = channel(), other = channel();
  const std::uint32_t client = join(*one);
  BodyWriter body;
  body.put_u32(client).put_u64(server_->core().find_client(client)->identity());
  ASSERT_TRUE(other->call({.op = static_cast<std::uint16_t>(Op::kAttach), .body = body.bytes()}));
  hold_next_mount();
  auto mounting = std::async(std::launch::async, [&] { return mount(*one); });
  wait_until_held();
  EXPECT_TRUE(other->call({.op = static_cast<std::uint16_t>(Op::kLeave)}));
  release();
  EXPECT_EQ(mounting.get().error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(server_->core().segments().empty());
  EXPECT_EQ(server_->clients(), 0u);
}

TEST_F(NodeMount, WhatAClientMountedThatDiedMeanwhileIsTheNextOnes) {
  auto dying = channel();
  join(*dying);
  hold_next_mount();
  BodyWriter body;
  body.put_u64(kMiB).put_string("host:1");
  ASSERT_TRUE(dying->send({.op = static_cast<std::uint16_t>(Op::kMount), .body = body.bytes()}));
  wait_until_held();
  dying.reset();
  release();
  const auto next = channel();
  join(*next);
  EXPECT_EQ(mount(*next).value(), 0u);  // by its name, once the death of its owner is seen
  const auto segments = server_->core().segments();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].state, SegmentState::kMounted);
}

}  // namespace
}  // namespace nmc::store
