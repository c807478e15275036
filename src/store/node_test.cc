// A node's server and its clients, over each of their carriers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <thread>

#include "base/failpoint.h"
#include "base/rng.h"
#include "store/client.h"
#include "store/node_server.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Path { kShared, kTcp };

class NodeTest : public ::testing::TestWithParam<Path> {
 protected:
  NodeTest() { start(); }
  ~NodeTest() override {
    disarm_failpoints();
    server_.reset();
  }

  void start() {
    server_.reset();
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {64, 1 << 16};
    options.core.lease = 10s;
    options.tcp_host = "127.0.0.1";
    options.tcp_port = port_;
    auto server = NodeServer::start(options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    port_ = server_->tcp_port();
  }

  Result<std::unique_ptr<Client>> try_connect(Path path, std::uint64_t segment_bytes = 0,
                                              std::string hostname = "host") {
    ClientOptions options;
    options.server = path == Path::kTcp ? "127.0.0.1:" + std::to_string(port_)
                                        : "unix:" + (folder_.path() / "store" / "socket").string();
    options.shared_memory = path == Path::kShared;
    options.segment_bytes = segment_bytes;
    options.hostname = std::move(hostname);
    options.progress_deadline = 5s;
    return Client::connect(options);
  }
  std::unique_ptr<Client> connect(Path path, std::uint64_t segment_bytes = 0) {
    auto client = try_connect(path, segment_bytes);
    EXPECT_TRUE(client) << client.error().message;
    return client ? std::move(*client) : nullptr;
  }
  std::unique_ptr<Client> connect() { return connect(GetParam()); }

  static std::string text(std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
  static Outcome put(Client& client, std::string_view key, std::string_view value, const PutOptions& options = {}) {
    return client.put(key, bytes_of(value), options);
  }
  static std::string get(Client& client, std::string_view key) {
    Client::View view;
    const Outcome outcome = client.view(key, view);
    return outcome == 0 ? text(view.bytes()) : store_code_name(outcome);
  }
  static std::string random_text(std::size_t size, std::uint64_t seed) {
    Rng rng(seed);
    std::string text(size, 0);
    for (char& c : text) c = static_cast<char>(rng.next());
    return text;
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-node").value();
  std::uint16_t port_ = 0;
  std::unique_ptr<NodeServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Paths, NodeTest, ::testing::Values(Path::kShared, Path::kTcp),
                         [](const auto& instance) { return instance.param == Path::kShared ? "shared" : "tcp"; });

TEST_P(NodeTest, WhatIsPutIsReadByteForByte) {
  const auto owner = connect(Path::kShared, 64 << 20);
  const auto client = connect();
  for (const std::size_t size : {1, 7, 4096, 65536, 65537, 1 << 20, 20 << 20}) {
    const std::string key = "k" + std::to_string(size), value = random_text(size, size);
    EXPECT_EQ(put(*client, key, value), 0) << size;
    EXPECT_EQ(client->exists(key), 1);
    EXPECT_EQ(client->size_of(key), static_cast<Outcome>(size));
    EXPECT_TRUE(get(*client, key) == value) << size;
    EXPECT_TRUE(get(*owner, key) == value) << size;
    std::string into(size + 10, '.');
    EXPECT_EQ(client->read(key, std::as_writable_bytes(std::span(into))), static_cast<Outcome>(size));
    EXPECT_TRUE(into == value + "..........") << size;
    std::string small(size - 1, '.');
    EXPECT_EQ(client->read(key, std::as_writable_bytes(std::span(small))), outcome_of(StoreCode::kInvalidParams));
    EXPECT_TRUE(small == std::string(size - 1, '.'));
  }
  EXPECT_EQ(client->exists("none"), 0);
  EXPECT_EQ(client->size_of("none"), outcome_of(StoreCode::kObjectNotFound));
  EXPECT_EQ(get(*client, "none"), "OBJECT_NOT_FOUND");
}

TEST_P(NodeTest, AtHandIsWhatCanBeReadNowWithoutAMessage) {
  const auto owner = connect(Path::kShared, 64 << 20);
  const auto client = connect();
  const bool shared = GetParam() == Path::kShared;
  const auto at_hand = [&](std::vector<std::string_view> keys, std::uint64_t bytes_max) {
    return client->at_hand(keys, bytes_max);
  };
  EXPECT_EQ(client->reads_at_once(), shared);
  EXPECT_EQ(at_hand({"none"}, 0), shared);  // the answer is no

  ASSERT_EQ(put(*owner, "a", "four"), 0);
  ASSERT_EQ(put(*owner, "b", "four"), 0);
  EXPECT_FALSE(at_hand({"a"}, 100)) << "its segment isn't known yet";
  EXPECT_EQ(get(*client, "a"), "four");
  EXPECT_EQ(at_hand({"a"}, 4), shared);
  EXPECT_FALSE(at_hand({"a"}, 3));
  EXPECT_EQ(at_hand({"a", "none", "b"}, 8), shared);
  EXPECT_FALSE(at_hand({"a", "none", "b"}, 7));
}

TEST_P(NodeTest, ABatchOfSmallAndLargeObjectsComesByteForByte) {
  const auto owner = connect(Path::kShared, 64 << 20);
  const auto client = connect();
  std::vector<std::string> keys, values;
  std::vector<std::string_view> names;
  for (const std::size_t size : {100, 3 << 20, 1, (2 << 20) + 1, 2 << 20, 9'000'001, 70'000}) {
    keys.push_back("k" + std::to_string(size));
    values.push_back(random_text(size, size));
    ASSERT_EQ(put(*owner, keys.back(), values.back()), 0);
  }
  keys.insert(keys.begin() + 3, "none");
  values.insert(values.begin() + 3, "");
  names.assign(keys.begin(), keys.end());

  std::vector<Client::View> views(keys.size());
  std::vector<Outcome> outcomes(keys.size(), 7);
  client->view(names, views, outcomes);
  std::vector<std::string> fetched(keys.size());
  std::vector<Outcome> sizes(keys.size(), 7);
  client->fetch(
      names,
      [&](std::size_t i, std::uint64_t bytes) -> Result<std::span<std::byte>> {
        fetched[i].resize(bytes);
        return std::as_writable_bytes(std::span(fetched[i]));
      },
      sizes);
  // Into three places each, the last one larger than needed.
  std::vector<std::array<std::string, 3>> places(keys.size());
  std::vector<std::array<std::span<std::byte>, 3>> spans(keys.size());
  std::vector<Client::Read> reads;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t third = values[i].size() / 3;
    for (std::size_t k = 0; k < 3; ++k) {
      places[i][k].resize(k < 2 ? third : values[i].size() - 2 * third + 5, '.');
      spans[i][k] = std::as_writable_bytes(std::span(places[i][k]));
    }
    reads.push_back({names[i], spans[i]});
  }
  std::vector<Outcome> read(keys.size(), 7);
  client->read(reads, read);

  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool there = keys[i] != "none";
    const Outcome size = there ? static_cast<Outcome>(values[i].size()) : outcome_of(StoreCode::kObjectNotFound);
    EXPECT_EQ(outcomes[i], there ? 0 : size);
    EXPECT_EQ(sizes[i], size) << keys[i];
    EXPECT_EQ(read[i], size) << keys[i];
    EXPECT_TRUE(text(views[i].bytes()) == values[i]) << keys[i];
    EXPECT_TRUE(fetched[i] == values[i]) << keys[i];
    EXPECT_TRUE(places[i][0] + places[i][1] + places[i][2] == values[i] + ".....") << keys[i];
  }
}

// Large objects come in parts over several connections.
TEST_P(NodeTest, AReadDuringAReplacementIsOfOneValue) {
  const auto owner = connect(Path::kShared, 64 << 20);
  const auto client = connect();
  constexpr std::size_t kSize = 5 << 20;
  const std::array<std::string, 2> values = {std::string(kSize, 'a'), std::string(kSize + 4096, 'b')};
  ASSERT_EQ(put(*owner, "k", values[0]), 0);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 1; !stop.load(); ++i) EXPECT_EQ(put(*owner, "k", values[i % 2], {.replace = true}), 0);
  });
  std::string into(kSize + 4096, '.');
  for (int i = 0; i < 60; ++i) {
    const Outcome bytes = client->read("k", std::as_writable_bytes(std::span(into)));
    ASSERT_TRUE(bytes == kSize || bytes == kSize + 4096) << bytes;
    const std::string& expected = values[bytes == kSize ? 0 : 1];
    ASSERT_TRUE(into.compare(0, static_cast<std::size_t>(bytes), expected) == 0) << i;
  }
  stop.store(true);
  writer.join();
}

TEST_P(NodeTest, TheFirstValueStaysUnlessItIsReplaced) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  EXPECT_EQ(put(*client, "k", std::string(64, 'A')), 0);
  EXPECT_EQ(put(*client, "k", std::string(128, 'B')), 0);
  EXPECT_EQ(get(*client, "k"), std::string(64, 'A'));
  EXPECT_EQ(put(*client, "k", std::string(128, 'B'), {.replace = true}), 0);
  EXPECT_EQ(get(*client, "k"), std::string(128, 'B'));
  EXPECT_EQ(put(*client, "new", "fresh", {.replace = true}), 0);
  EXPECT_EQ(get(*client, "new"), "fresh");
}

TEST_P(NodeTest, BatchesAnswerEachItem) {
  const auto owner = connect(Path::kShared, 8 << 20);
  const auto client = connect();
  std::vector<std::string> keys, values;
  for (int i = 0; i < 100; ++i) {
    keys.push_back("key" + std::to_string(i));
    values.push_back(
        random_text(1 + static_cast<std::size_t>(i) * (i % 10 == 0 ? 400 : 17), static_cast<std::uint64_t>(i)));
  }
  std::vector<std::array<std::span<const std::byte>, 2>> parts(100);
  std::vector<Client::Put> puts;
  for (std::size_t i = 0; i < 100; ++i) {
    const auto value = bytes_of(values[i]);
    parts[i] = {value.first(value.size() / 3), value.subspan(value.size() / 3)};
    puts.push_back({keys[i], parts[i]});
  }
  puts[40].key = "";
  puts[41].parts = {};
  const std::string long_key(5000, 'k');
  puts[42].key = long_key;
  std::vector<Outcome> outcomes(100, 1);
  client->put(puts, {}, outcomes);
  for (std::size_t i = 0; i < 100; ++i) {
    const Outcome expected = i == 40 || i == 41 ? outcome_of(StoreCode::kInvalidParams)
                             : i == 42          ? outcome_of(StoreCode::kInvalidKey)
                                                : 0;
    EXPECT_EQ(outcomes[i], expected) << i;
  }
  std::vector<std::string_view> names(keys.begin(), keys.end());
  client->exists(names, outcomes);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(outcomes[i], i < 40 || i > 42 ? 1 : 0) << i;
  std::vector<std::string> into(100);
  std::vector<std::array<std::span<std::byte>, 2>> to(100);
  std::vector<Client::Read> reads;
  for (std::size_t i = 0; i < 100; ++i) {
    into[i].resize(values[i].size() + (i % 2));
    const auto room = std::as_writable_bytes(std::span(into[i]));
    to[i] = {room.first(room.size() / 2), room.subspan(room.size() / 2)};
    reads.push_back({keys[i], to[i]});
  }
  client->read(reads, outcomes);
  for (std::size_t i = 0; i < 100; ++i) {
    if (i >= 40 && i <= 42) {
      EXPECT_EQ(outcomes[i], outcome_of(StoreCode::kObjectNotFound)) << i;
      continue;
    }
    EXPECT_EQ(outcomes[i], static_cast<Outcome>(values[i].size())) << i;
    EXPECT_TRUE(into[i].substr(0, values[i].size()) == values[i]) << i;
  }
}

TEST_P(NodeTest, RangesAreReadIntoTheirPlaces) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  ASSERT_EQ(put(*client, "k", "0123456789"), 0);
  std::string a(3, '.'), b(4, '.'), c(2, '.');
  const std::array<Client::Range, 3> ranges = {Client::Range{2, std::as_writable_bytes(std::span(a))},
                                               Client::Range{6, std::as_writable_bytes(std::span(b))},
                                               Client::Range{9, std::as_writable_bytes(std::span(c))}};
  std::array<Outcome, 3> outcomes{};
  client->read_ranges("k", ranges, outcomes);
  EXPECT_THAT(outcomes, ElementsAre(3, 4, outcome_of(StoreCode::kInvalidParams)));
  EXPECT_EQ(a + b + c, "2346789..");
  client->read_ranges("none", ranges, outcomes);
  EXPECT_THAT(outcomes, ::testing::Each(outcome_of(StoreCode::kObjectNotFound)));
}

TEST_P(NodeTest, RemovalTellsLeasedAbsentAndForced) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  ASSERT_EQ(put(*client, "k", "v"), 0);
  EXPECT_EQ(get(*client, "k"), "v");
  EXPECT_EQ(client->remove("k"), outcome_of(StoreCode::kObjectHasLease));
  EXPECT_EQ(client->remove("k", true), 0);
  EXPECT_EQ(client->remove("k"), outcome_of(StoreCode::kObjectNotFound));
  EXPECT_EQ(client->remove("never"), outcome_of(StoreCode::kObjectNotFound));
  ASSERT_EQ(put(*client, "k", "v"), 0);
  EXPECT_EQ(client->exists("k"), 1);  // a probe renews the lease
  EXPECT_EQ(client->remove("k"), outcome_of(StoreCode::kObjectHasLease));
  ASSERT_EQ(put(*client, "unread", "v"), 0);
  EXPECT_EQ(client->remove("unread"), 0);
}

TEST_P(NodeTest, RemovalByPatternSparesTheEnginesKeys) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  for (const char* key : {"a/1", "a/2", "b/1", "nmc/0123"}) ASSERT_EQ(put(*client, key, "v"), 0);
  EXPECT_EQ(client->remove_matching("^a/", false), 2);
  EXPECT_EQ(client->remove_matching("(", false), outcome_of(StoreCode::kInvalidParams));
  EXPECT_EQ(client->remove_all(false), 1);
  EXPECT_EQ(client->exists("nmc/0123"), 1);
}

// Brackets nested this deep would be the end of the thread that looks into them.
TEST_P(NodeTest, APatternTooLongIsRefused) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  EXPECT_EQ(put(*client, "k", "v"), 0);
  EXPECT_EQ(client->remove_matching(std::string(50'000, '(') + std::string(50'000, ')'), true),
            outcome_of(StoreCode::kInvalidParams));
  EXPECT_EQ(client->remove_matching("(", true), outcome_of(StoreCode::kInvalidParams));
  EXPECT_EQ(client->remove_matching(std::string(500, '(') + 'k' + std::string(500, ')'), true), 1);
}

TEST_P(NodeTest, AFullStoreEvictsAndNoPutFails) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto client = connect();
  const std::string value = random_text(64 << 10, 1);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(put(*client, "k" + std::to_string(i), value), 0) << i;
  EXPECT_TRUE(get(*client, "k199") == value);
  EXPECT_EQ(put(*client, "huge", random_text(2 << 20, 2)), outcome_of(StoreCode::kNoAvailableHandle));
  EXPECT_TRUE(get(*client, "k199") == value);
}

TEST_P(NodeTest, ABatchLargerThanTheStoreFindsRoomForEach) {
  const auto owner = connect(Path::kShared, 8 << 20);
  const auto client = connect();
  const std::string value = random_text(1 << 20, 4);
  const std::span<const std::byte> part = bytes_of(value);
  std::vector<std::string> keys;
  std::vector<Client::Put> puts;
  for (int i = 0; i < 40; ++i) keys.push_back("k" + std::to_string(i));
  for (const std::string& key : keys) puts.push_back({key, std::span(&part, 1)});
  std::vector<Outcome> outcomes(puts.size(), 1);
  client->put(puts, {}, outcomes);
  EXPECT_THAT(outcomes, ::testing::Each(0));
  // Those put last are there; over several connections it is not certain which those are.
  int held = 0;
  for (const std::string& key : keys) {
    if (client->exists(key) == 1) held += get(*client, key) == value;
  }
  EXPECT_GE(held, 6);
  EXPECT_EQ(GetParam() == Path::kShared ? client->exists("k39") : 1, 1);
}

TEST_P(NodeTest, WithoutASegmentThereIsNoRoom) {
  const auto client = connect();
  EXPECT_EQ(put(*client, "k", "v"), outcome_of(StoreCode::kNoAvailableHandle));
}

TEST_P(NodeTest, ThreadsShareAClient) {
  const auto owner = connect(Path::kShared, 32 << 20);
  const auto client = connect();
  std::vector<std::future<int>> workers;
  for (int t = 0; t < 8; ++t) {
    workers.push_back(std::async(std::launch::async, [&, t] {
      int wrong = 0;
      for (int i = 0; i < 60; ++i) {
        const std::string key = fmt::format("{}/{}", t, i), value = random_text(5000 + i, t * 1000 + i);
        wrong += put(*client, key, value) != 0;
        wrong += get(*client, key) != value;
        if (i % 3 == 0) wrong += client->remove(key, true) != 0;
      }
      return wrong;
    }));
  }
  for (auto& worker : workers) EXPECT_EQ(worker.get(), 0);
}

TEST_P(NodeTest, OneValueWinsWhenManyPutOneKey) {
  const auto owner = connect(Path::kShared, 32 << 20);
  const auto client = connect();
  for (int round = 0; round < 20; ++round) {
    const std::string key = "k" + std::to_string(round);
    std::vector<std::future<Outcome>> workers;
    for (int t = 0; t < 4; ++t)
      workers.push_back(std::async(
          std::launch::async, [&, t] { return put(*client, key, std::string(100'000, static_cast<char>('a' + t))); }));
    for (auto& worker : workers) EXPECT_EQ(worker.get(), 0);
    const std::string value = get(*client, key);
    EXPECT_TRUE(value == std::string(100'000, value[0]));
  }
  EXPECT_EQ(server_->core().segments()[0].used_bytes, 20u * (100'000u / 64 + 1) * 64);
}

TEST_P(NodeTest, CopiesOutliveAnOwnerThatLeaves) {
  auto first = connect(Path::kShared, 4 << 20), second = connect(Path::kShared, 4 << 20);
  const auto client = connect();
  const std::string large = random_text(200'000, 3);
  ASSERT_EQ(put(*client, "large", large, {.replicas = 2}), 0);
  ASSERT_EQ(put(*client, "small", "v", {.replicas = 3}), 0);
  std::vector<ReplicaInfo> replicas;
  EXPECT_EQ(client->replicas("large", replicas), 0);
  ASSERT_EQ(replicas.size(), 2u);
  EXPECT_NE(replicas[0].segment, replicas[1].segment);
  EXPECT_EQ(replicas[0].bytes, large.size());
  EXPECT_EQ(client->replicas("none", replicas), outcome_of(StoreCode::kObjectNotFound));
  (replicas[0].segment == first->name() ? first : second).reset();
  EXPECT_TRUE(get(*client, "large") == large);
  EXPECT_EQ(get(*client, "small"), "v");
}

class NodeDoors : public NodeTest {};
INSTANTIATE_TEST_SUITE_P(Shared, NodeDoors, ::testing::Values(Path::kShared));

TEST_P(NodeDoors, ATcpAddressOfThisHostLeadsToSharedMemory) {
  ClientOptions options;
  options.server = "127.0.0.1:" + std::to_string(port_);
  options.segment_bytes = 32 << 20;
  const auto client = Client::connect(options).value();
  const std::string value = random_text(8 << 20, 1);
  ASSERT_EQ(put(*client, "large", value), 0);
  ASSERT_EQ(put(*client, "small", "v"), 0);
  EXPECT_TRUE(get(*client, "large") == value);
  const ClientCounters counters = client->counters();
  EXPECT_EQ(counters.tcp.bytes_sent + counters.tcp.bytes_received, 0u);
  EXPECT_EQ(counters.unix_socket.bytes_sent, 1u);
  EXPECT_EQ(counters.shared_write_bytes, value.size());
  EXPECT_EQ(counters.shared_read_bytes, value.size());
}

TEST_P(NodeDoors, AClientOfAnotherHostOwnsASegmentAsLongAsItIsConnected) {
  auto owner = connect(Path::kTcp, 1 << 20);
  const auto reader = connect(Path::kTcp);
  ASSERT_EQ(put(*owner, "k", std::string(100'000, 'v')), 0);
  EXPECT_EQ(get(*reader, "k"), std::string(100'000, 'v'));
  EXPECT_GE(reader->counters().tcp.bytes_received, 100'000u);
  server_.reset();
  start();
  EXPECT_EQ(get(*reader, "k"), "OBJECT_NOT_FOUND");  // its owner may be gone
  EXPECT_EQ(put(*owner, "l", "v"), 0);               // no: it takes its segment over
  EXPECT_EQ(get(*reader, "k"), std::string(100'000, 'v'));
  owner.reset();
  EXPECT_EQ(get(*reader, "k"), "OBJECT_NOT_FOUND");
  EXPECT_EQ(server_->clients(), 0u);
}

TEST_P(NodeDoors, CloseGivesTheSegmentBack) {
  auto owner = connect(Path::kShared, 1 << 20);
  const auto other = connect(Path::kShared);
  ASSERT_EQ(put(*owner, "k", "v"), 0);
  EXPECT_EQ(server_->clients(), 2u);
  owner.reset();
  EXPECT_EQ(server_->clients(), 1u);
  EXPECT_EQ(other->exists("k"), 0);
  EXPECT_EQ(put(*other, "k", "v"), outcome_of(StoreCode::kNoAvailableHandle));
  EXPECT_THAT(server_->core().segments(), ::testing::IsEmpty());
}

TEST_P(NodeDoors, ClientsGoOnWithTheNextMaster) {
  const auto owner = connect(Path::kShared, 1 << 20);
  const auto reader = connect(Path::kShared);
  ASSERT_EQ(put(*owner, "k", "v"), 0);
  server_.reset();
  EXPECT_EQ(get(*reader, "k"), "v");  // what lies in shared memory needs no master
  EXPECT_EQ(put(*reader, "l", "v"), outcome_of(StoreCode::kRpcFail));
  EXPECT_FALSE(reader->healthy());
  start();
  // In-process clients look dead to a new master, since a process doesn't see its own locks: they join anew.
  EXPECT_TRUE(reader->healthy());
  EXPECT_TRUE(owner->healthy());
  EXPECT_EQ(put(*reader, "l", "v"), 0);
  EXPECT_EQ(get(*owner, "k"), "v");
  EXPECT_EQ(get(*owner, "l"), "v");
}

TEST_P(NodeDoors, AnEmptyStoreLeavesNothingBehind) {
  { const auto owner = connect(Path::kShared, 1 << 20); }
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "store"));
}

TEST_P(NodeDoors, AMasterThatCannotBeginLeavesAFolderAsItWas) {
  NodeServerOptions options;
  options.folder = folder_.path() / "other";
  ASSERT_TRUE(std::filesystem::create_directories(options.folder / "index" / "in the way"));
  std::filesystem::permissions(options.folder, std::filesystem::perms::owner_all);
  EXPECT_FALSE(NodeServer::start(options));
  EXPECT_FALSE(std::filesystem::exists(options.folder / NodeServer::kLockName));
  EXPECT_TRUE(std::filesystem::exists(options.folder / "index" / "in the way"));
}

TEST_P(NodeDoors, OneMasterAFolder) {
  NodeServerOptions options;
  options.folder = folder_.path() / "store";
  options.core.entries = {64, 64};
  const auto second = NodeServer::start(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr(options.folder.string()));
}

TEST_P(NodeDoors, NobodyThereIsAnErrorSoon) {
  server_.reset();
  const Stopwatch watch;
  EXPECT_EQ(try_connect(Path::kTcp).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(try_connect(Path::kShared));
  EXPECT_LT(watch.elapsed(), 3s);
}

TEST_P(NodeDoors, ASegmentTooLargeForTheMachineIsAnErrorThatSaysSo) {
  const auto client = try_connect(Path::kShared, std::uint64_t{1} << 46);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(server_->clients(), 0u);
}

TEST_P(NodeDoors, ReservationsOfAClientThatIsGoneComeBack) {
  const auto owner = connect(Path::kShared, 1 << 20);
  {
    const auto writer = connect(Path::kShared);
    // The commit never leaves: the reservation is there until its client isn't.
    arm_failpoint("store.fill", FailpointAction::kError, 1,
                  [] { arm_failpoint("store.call", FailpointAction::kError); });
    EXPECT_EQ(put(*writer, "k", std::string(200'000, 'x')), outcome_of(StoreCode::kRpcFail));
    StoreStats stats;
    server_->core().fill_stats(stats);
    EXPECT_EQ(stats.reservations, 1u);
    EXPECT_EQ(owner->exists("k"), 0);
  }
  StoreStats stats;
  server_->core().fill_stats(stats);
  EXPECT_EQ(stats.reservations, 0u);
}

}  // namespace
}  // namespace nmc::store
