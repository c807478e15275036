// A node's store as engines use it: blocks of several processes, and what becomes of them when the master goes.
#include "store/node_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "base/rng.h"
#include "store/node_server.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::size_t kBlockBytes = 64 << 10;

// A master in a process of its own, which ends without a word.
class OtherMaster {
 public:
  explicit OtherMaster(const Path& folder) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      NodeServerOptions options;
      options.folder = folder;
      options.core.entries = {64, 1 << 16};
      const auto server = NodeServer::start(options);
      const char answer = server ? '+' : '-';
      if (::write(ready[1], &answer, 1) == 1 && server) ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, '+');
    ::close(ready[0]);
  }
  ~OtherMaster() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OtherMaster(const OtherMaster&) = delete;
  OtherMaster& operator=(const OtherMaster&) = delete;

 private:
  pid_t pid_;
};

class NodeStoreTest : public ::testing::Test {
 protected:
  NodeStoreTest() { start(); }

  void start() { master_.emplace(folder_.path() / "store"); }
  void stop() { master_.reset(); }

  Result<std::unique_ptr<NodeStore>> try_join(std::size_t dram_bytes) {
    StoreOptions options;
    options.server = "unix:" + (folder_.path() / "store" / "socket").string();
    options.dram_bytes = dram_bytes;
    options.block_bytes = kBlockBytes;
    options.clock = &clock_;
    return NodeStore::join(options);
  }
  std::unique_ptr<NodeStore> join(std::size_t dram_bytes = 0) {
    auto store = try_join(dram_bytes);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  static void fill(Reservation& reservation, char what) {
    std::memset(reservation.bytes().data(), what, reservation.bytes().size());
  }
  static Result<Pin> put_block(Store& store, const std::string& key, char what) {
    NMC_ASSIGN_OR_RETURN(Reservation block, store.reserve(ObjectClass::kBlock, kBlockBytes));
    fill(block, what);
    return store.commit(std::move(block), key);
  }
  static bool holds(const Pin& pin, char what) {
    return pin.bytes().size() == kBlockBytes &&
           std::all_of(pin.bytes().begin(), pin.bytes().end(), [&](std::byte b) { return b == std::byte(what); });
  }
  // The master is asked again once the silence after a failure is over.
  void pass_silence() { clock_.advance(1s); }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-node-store").value();
  ManualClock clock_;
  std::optional<OtherMaster> master_;
};

TEST_F(NodeStoreTest, ABlockOfOneProcessIsReadByAnotherWhereItLies) {
  const auto one = join(4 << 20), other = join();
  const auto pin = put_block(*one, "nmc/a", 'a');
  ASSERT_TRUE(pin) << pin.error().message;
  EXPECT_TRUE(holds(*pin, 'a'));
  const auto seen = other->lookup("nmc/a");
  ASSERT_TRUE(seen);
  EXPECT_TRUE(holds(*seen, 'a'));
  EXPECT_EQ(seen->generation(), pin->generation());
  EXPECT_EQ(other->probe_run(std::vector<std::string>{"nmc/a", "nmc/b"}), 1u);
}

TEST_F(NodeStoreTest, OfTwoCommitsOfOneKeyOneCopyStays) {
  const auto one = join(4 << 20), other = join();
  const auto first = put_block(*one, "nmc/a", 'a');
  ASSERT_TRUE(first);
  const std::uint64_t used = one->stats().used_bytes;
  const auto second = put_block(*other, "nmc/a", 'b');
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->generation(), first->generation());
  EXPECT_TRUE(holds(*second, 'a'));
  const StoreStats stats = one->stats();
  EXPECT_EQ(stats.objects, 1u);
  EXPECT_EQ(stats.reservations, 0u);
  EXPECT_EQ(stats.used_bytes, used);
  EXPECT_EQ(other->stats().reservations, 0u);
}

TEST_F(NodeStoreTest, BlocksAreReservedAllOrNoneAndNothingIsEvictedInVain) {
  const auto store = join(4 << 20);
  const std::size_t total = store->blocks_total();
  ASSERT_GT(total, 10u);
  { ASSERT_TRUE(put_block(*store, "nmc/old", 'o')); }
  auto most = store->reserve_blocks(total - 1);
  ASSERT_TRUE(most) << most.error().message;
  const auto refused = store->reserve_blocks(2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted) << refused.error().message;
  EXPECT_TRUE(store->lookup("nmc/old"));
  EXPECT_EQ(store->stats().blocks_reserved, total - 1);
  EXPECT_TRUE(store->reserve_blocks(1)) << "the old block makes room";
  EXPECT_FALSE(store->lookup("nmc/old"));
  most->clear();
  EXPECT_EQ(store->stats().blocks_reserved, 0u);
  EXPECT_TRUE(store->reserve_blocks(total));
}

TEST_F(NodeStoreTest, WhatIsPinnedIsNotEvicted) {
  const auto one = join(4 << 20), other = join();
  ASSERT_TRUE(put_block(*one, "nmc/a", 'a'));
  const auto pin = other->lookup("nmc/a");
  ASSERT_TRUE(pin);
  std::vector<Reservation> rest;
  while (auto block = one->reserve(ObjectClass::kBlock, kBlockBytes)) rest.push_back(*std::move(block));
  EXPECT_GE(rest.size() + 2, one->blocks_total());
  EXPECT_TRUE(holds(*pin, 'a'));
}

TEST_F(NodeStoreTest, WhatIsHeldOutlivesTheMaster) {
  const auto store = join(4 << 20);
  auto block = store->reserve(ObjectClass::kBlock, kBlockBytes);
  ASSERT_TRUE(block);
  auto kept = put_block(*store, "nmc/kept", 'k');
  ASSERT_TRUE(kept);
  stop();
  fill(*block, 'x');
  const auto refused = store->commit(std::move(*block), "nmc/x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << refused.error().message;
  ASSERT_TRUE(*block) << "it stays with the caller";
  EXPECT_TRUE(holds(*kept, 'k'));
  EXPECT_TRUE(store->lookup("nmc/kept"));
  start();
  EXPECT_FALSE(store->commit(std::move(*block), "nmc/x")) << "asked too soon";
  pass_silence();
  const auto pin = store->commit(std::move(*block), "nmc/x");
  ASSERT_TRUE(pin) << pin.error().message;
  EXPECT_TRUE(holds(*pin, 'x'));
  EXPECT_TRUE(holds(*join()->lookup("nmc/x"), 'x'));
}

TEST_F(NodeStoreTest, SomeBlocksAreInReserveForWhenThereIsNoMaster) {
  const auto store = join(4 << 20);
  stop();
  std::vector<Reservation> blocks;
  for (;;) {
    auto block = store->reserve(ObjectClass::kBlock, kBlockBytes);
    if (!block) break;
    fill(*block, 's');
    blocks.push_back(*std::move(block));
  }
  const std::size_t count = blocks.size();
  EXPECT_GT(count, 4u);
  EXPECT_LE(count, store->blocks_total() / 8);
  blocks.clear();
  EXPECT_TRUE(store->reserve_blocks(count)) << "they are there again";
}

TEST_F(NodeStoreTest, APlaceOfAStoreThatIsGoneIsNeverCommittedToTheNextOne) {
  const auto store = join(4 << 20);
  auto block = store->reserve(ObjectClass::kBlock, kBlockBytes);
  ASSERT_TRUE(block);
  fill(*block, 'x');
  stop();
  std::filesystem::remove_all(folder_.path() / "store");
  start();
  pass_silence();
  const auto first = store->reserve(ObjectClass::kBlock, kBlockBytes);  // joins, or is told that it has just joined
  pass_silence();
  const auto fresh = first ? Result<Reservation>(store->reserve(ObjectClass::kBlock, kBlockBytes))
                           : store->reserve(ObjectClass::kBlock, kBlockBytes);
  ASSERT_TRUE(fresh) << fresh.error().message;
  EXPECT_EQ(store->commit(std::move(*block), "nmc/x").error().code, ErrorCode::kPermissionDenied);
  EXPECT_FALSE(store->lookup("nmc/x"));
}

TEST_F(NodeStoreTest, AnEndedProcessLeavesItsBlocksToTheNext) {
  {
    const auto store = join(4 << 20);
    ASSERT_TRUE(put_block(*store, "nmc/a", 'a'));
  }
  const auto next = join(4 << 20);
  const auto pin = next->lookup("nmc/a");
  ASSERT_TRUE(pin);
  EXPECT_TRUE(holds(*pin, 'a'));
}

TEST_F(NodeStoreTest, AChainIsFetchedAsFarAsItGoesAndEvictedFromItsEnd) {
  const auto store = join(1 << 20);
  std::vector<std::string> keys;
  for (int i = 0; i < 6; ++i) keys.push_back("nmc/" + std::to_string(i));
  for (const std::string& key : keys) ASSERT_TRUE(put_block(*store, key, key.back()));
  {
    const nmc::store::Run run = store->fetch_run(keys);
    ASSERT_EQ(run.pins.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(holds(run.pins[i], static_cast<char>('0' + i)));
  }
  const auto rest = store->reserve_blocks(store->blocks_total() - 4);
  ASSERT_TRUE(rest);
  EXPECT_EQ(store->fetch_run(keys).pins.size(), 4u);
  EXPECT_TRUE(store->remove(keys[1]));
  EXPECT_FALSE(store->remove(keys[1]));
  EXPECT_EQ(store->fetch_run(keys).pins.size(), 1u);
}

TEST_F(NodeStoreTest, TailsStayBelowTheirShare) {
  const auto store = join(4 << 20);
  const std::size_t tail_bytes = 40 << 10;
  for (int i = 0; i < 20; ++i) {
    auto tail = store->reserve(ObjectClass::kTail, tail_bytes);
    ASSERT_TRUE(tail) << i << ": " << tail.error().message;
    std::memset(tail->bytes().data(), i, tail_bytes);
    ASSERT_TRUE(store->commit(std::move(*tail), "nmc/tail" + std::to_string(i)));
  }
  EXPECT_LE(store->stats().tail_bytes, store->stats().segment_bytes / 20);
  EXPECT_GT(store->stats().tail_bytes, 0u);
}

TEST_F(NodeStoreTest, AStoreWithoutRoomForABlockSaysWhatIsMissing) {
  const auto none = try_join(0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("--dram-bytes"));
}

TEST_F(NodeStoreTest, ManyThreadsOfTwoProcessesKeepTheirBlocksApart) {
  const auto one = join(2 << 20), other = join(2 << 20);
  const auto work = [](NodeStore& store, std::uint64_t seed) {
    Rng rng(seed);
    for (int round = 0; round < 200; ++round) {
      const char what = static_cast<char>('a' + rng.below(26));
      const std::string key = std::string("nmc/") + what;
      if (const auto pin = store.lookup(key)) {
        ASSERT_TRUE(holds(*pin, what));
        continue;
      }
      const auto pin = put_block(store, key, what);
      ASSERT_TRUE(!pin || holds(*pin, what));
      if (rng.below(4) == 0) store.remove(key);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { work(i % 2 == 0 ? *one : *other, i + 1); });
  }
  EXPECT_EQ(one->stats().reservations + other->stats().reservations, 0u);
}

}  // namespace
}  // namespace nmc::store
