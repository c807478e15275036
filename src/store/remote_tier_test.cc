// Stores with another node's store as a tier below their memory, over each of the ways that lead there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/failpoint.h"
#include "store/embedded_store.h"
#include "store/node_server.h"
#include "store/remote_medium.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBlockBytes = 32 << 10;

class RemoteTierTest : public ::testing::Test {
 protected:
  RemoteTierTest() {
    start();
    memory_ = Client::connect({.server = address(), .segment_bytes = 8 << 20}).value();
  }
  ~RemoteTierTest() override {
    disarm_failpoints();
    memory_.reset();
    server_.reset();
  }

  void start() {
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {64, 1 << 16};
    options.tcp_host = "127.0.0.1";
    options.tcp_port = port_;
    auto server = NodeServer::start(options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    port_ = server_->tcp_port();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::unique_ptr<EmbeddedStore> store(std::size_t dram_bytes = 4 << 20, Path disk = {}) {
    StoreOptions options;
    options.dram_bytes = dram_bytes;
    options.block_bytes = kBlockBytes;
    options.server = address();
    options.disk_dir = std::move(disk);
    options.disk_bytes = 8 << 20;
    options.clock = &clock_;
    auto made = EmbeddedStore::create(std::move(options));
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  static std::vector<std::string> chain(int from, int to) {
    std::vector<std::string> keys;
    for (int i = from; i < to; ++i) keys.push_back("nmc/" + std::to_string(i));
    return keys;
  }
  static std::vector<std::byte> content(const std::string& key) {
    return std::vector<std::byte>(kBlockBytes, static_cast<std::byte>(std::stoi(key.substr(4)) + 1));
  }
  static void put(Store& store, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) ASSERT_TRUE(store.put(ObjectClass::kBlock, key, content(key))) << key;
    const auto flushed = store.flush();
    ASSERT_TRUE(flushed) << flushed.error().message;
  }
  static bool holds(const Pin& pin, const std::string& key) {
    const std::vector<std::byte> wanted = content(key);
    return std::equal(pin.bytes().begin(), pin.bytes().end(), wanted.begin(), wanted.end());
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-remote").value();
  ManualClock clock_;
  std::uint16_t port_ = 0;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<Client> memory_;  // of the node
};

TEST_F(RemoteTierTest, WhatOneStoreKeepsAnotherFindsBelowItsOwnMemory) {
  const auto one = store(8 << 20), other = store();
  const std::vector<std::string> keys = chain(0, 70);  // more than are read at once
  put(*one, keys);
  {
    const nmc::store::Run run = other->fetch_run(keys);
    ASSERT_EQ(run.pins.size(), keys.size()) << run.stop_reason;
    EXPECT_EQ(run.from_remote, keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_TRUE(holds(run.pins[i], keys[i])) << i;
    EXPECT_EQ(run.pins[0].source(), Source::kRemote);
  }
  const nmc::store::Run again = other->fetch_run(keys);
  EXPECT_EQ(again.pins.size(), keys.size());
  EXPECT_EQ(again.from_remote, 0u) << "it is in memory now";
  EXPECT_EQ(other->stats().remote_hits, keys.size());
  EXPECT_EQ(other->stats().remote_read_bytes, keys.size() * kBlockBytes);
}

TEST_F(RemoteTierTest, WhatIsThereAlreadyIsntSentAgain) {
  const auto one = store(), other = store();
  put(*one, chain(0, 8));
  put(*other, chain(0, 10));
  EXPECT_EQ(one->stats().remote_written_bytes, 8 * kBlockBytes);
  EXPECT_EQ(other->stats().remote_written_bytes, 2 * kBlockBytes);
}

TEST_F(RemoteTierTest, ARunGoesOnThroughMemoryDiskAndRemote) {
  const Path disk = folder_.path() / "disk";
  put(*store(), chain(8, 12));
  { put(*store(4 << 20, disk), chain(4, 8)); }
  const auto reader = store(4 << 20, disk);
  for (const std::string& key : chain(0, 4)) ASSERT_TRUE(reader->put(ObjectClass::kBlock, key, content(key)));
  const nmc::store::Run run = reader->fetch_run(chain(0, 14));
  EXPECT_EQ(run.pins.size(), 12u) << run.stop_reason;
  EXPECT_EQ(run.from_disk, 4u);
  EXPECT_EQ(run.from_remote, 4u);
  EXPECT_EQ(reader->probe_run(chain(0, 14)), 12u);
}

TEST_F(RemoteTierTest, ARunLongerThanMemoryIsRestoredAsFarAsItFits) {
  put(*store(8 << 20), chain(0, 60));
  const auto small = store(1 << 20);
  const std::size_t room = small->blocks_total();
  ASSERT_LT(room, 60u);
  const nmc::store::Run run = small->fetch_run(chain(0, 60));
  EXPECT_EQ(run.pins.size(), room);
  for (std::size_t i = 0; i < run.pins.size(); ++i) EXPECT_TRUE(holds(run.pins[i], chain(0, 60)[i])) << i;
}

TEST_F(RemoteTierTest, TailsOfAnotherStoreAreFoundInTheirSize) {
  const auto one = store(), other = store();
  const std::vector<std::byte> tail(5000, std::byte{7});
  ASSERT_TRUE(one->put(ObjectClass::kTail, "nmc/tail", tail));
  ASSERT_TRUE(one->flush());
  EXPECT_FALSE(other->fetch("nmc/tail", ObjectClass::kTail, 4000));
  const auto found = other->fetch("nmc/tail", ObjectClass::kTail, 5000);
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), found->bytes().begin(), found->bytes().end()));
  EXPECT_TRUE(store()->fetch("nmc/tail", ObjectClass::kTail));
}

TEST_F(RemoteTierTest, ObjectsThatTheirKeyDoesntNameByContentStayHere) {
  const auto one = store(), other = store();
  ASSERT_TRUE(one->put(ObjectClass::kObject, "mine", std::vector<std::byte>(100)));
  ASSERT_TRUE(one->flush());
  EXPECT_FALSE(other->fetch("mine", ObjectClass::kObject));
}

TEST_F(RemoteTierTest, WhatIsRemovedIsGoneFromTheTierToo) {
  const auto one = store(), other = store();
  put(*one, chain(0, 3));
  EXPECT_TRUE(one->remove("nmc/1"));
  EXPECT_EQ(other->fetch_run(chain(0, 3)).pins.size(), 1u);
}

TEST_F(RemoteTierTest, CommitsGoOnWithoutTheRemoteAndItIsFoundAgain) {
  const auto one = store(), other = store();
  put(*one, chain(0, 4));
  server_.reset();
  EXPECT_EQ(other->fetch_run(chain(0, 4)).pins.size(), 4u) << "on this host it lies in shared memory";
  ASSERT_TRUE(one->put(ObjectClass::kBlock, "nmc/9", content("nmc/9")));
  EXPECT_FALSE(one->flush());
  EXPECT_GT(one->stats().remote_errors, 0u);
  start();
  clock_.advance(1min);
  memory_ = Client::connect({.server = address(), .segment_bytes = 8 << 20}).value();
  put(*one, chain(20, 24));
  EXPECT_EQ(other->fetch_run(chain(20, 24)).from_remote, 4u);
}

TEST_F(RemoteTierTest, ARemoteThatDoesntAnswerIsLeftAloneForAWhile) {
  put(*store(), chain(0, 4));
  const auto remote = RemoteMedium::connect({.server = address(), .shared_memory = false}, clock_).value();
  const auto errors = [&] {
    StoreStats stats;
    remote->fill_stats(stats);
    return stats.remote_errors;
  };
  server_.reset();
  EXPECT_EQ(remote->probe_run(chain(0, 4), kBlockBytes), 0u);
  EXPECT_EQ(errors(), 1u);
  EXPECT_EQ(remote->probe_run(chain(0, 4), kBlockBytes), 0u);
  EXPECT_EQ(remote->size_of("nmc/0"), std::nullopt);
  EXPECT_EQ(errors(), 1u) << "nobody was asked";
  memory_.reset();
  start();
  memory_ = Client::connect({.server = address(), .segment_bytes = 8 << 20}).value();
  put(*store(), chain(0, 4));
  EXPECT_EQ(remote->probe_run(chain(0, 4), kBlockBytes), 0u) << "not yet";
  clock_.advance(1min);
  EXPECT_EQ(remote->probe_run(chain(0, 4), kBlockBytes), 4u);
}

TEST_F(RemoteTierTest, AFaultWhileReadingEndsTheRun) {
  const auto one = store(), other = store();
  put(*one, chain(0, 4));
  arm_failpoint("remote.read", FailpointAction::kError);
  const nmc::store::Run run = other->fetch_run(chain(0, 4));
  EXPECT_EQ(run.pins.size(), 0u);
  EXPECT_NE(run.stop_reason, "");
  EXPECT_EQ(other->stats().reservations, 0u);
}

TEST_F(RemoteTierTest, ARemoteThatNobodyAnswersForIsAnErrorAtTheStart) {
  StoreOptions options;
  options.dram_bytes = 1 << 20;
  options.block_bytes = kBlockBytes;
  options.server = "127.0.0.1:1";
  const auto made = Store::create(options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnavailable) << made.error().message;
}

TEST_F(RemoteTierTest, OverTcpTheSameBytesCome) {
  put(*store(), chain(0, 6));
  const auto remote = RemoteMedium::connect({.server = address(), .shared_memory = false}, clock_).value();
  EXPECT_EQ(remote->probe_run(chain(0, 8), kBlockBytes), 6u);
  EXPECT_EQ(remote->size_of("nmc/2"), kBlockBytes);
  EXPECT_EQ(remote->size_of("nmc/7"), std::nullopt);
  const std::vector<std::string> keys = chain(0, 8);
  std::vector<std::vector<std::byte>> into(8, std::vector<std::byte>(kBlockBytes));
  std::vector<TierRead> reads;
  for (std::size_t i = 0; i < 8; ++i) reads.push_back({keys[i], into[i]});
  std::string why;
  EXPECT_EQ(remote->read(reads, &why), 6u);
  EXPECT_EQ(why, "") << "a plain miss";
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(into[i], content(keys[i])) << i;
  std::vector<std::byte> wrong(kBlockBytes + 1);
  const TierRead larger{keys[0], wrong};
  EXPECT_EQ(remote->read(std::span(&larger, 1), &why), 0u);
  EXPECT_NE(why, "");
}

}  // namespace
}  // namespace nmc::store
