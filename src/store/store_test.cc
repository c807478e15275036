#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "base/failpoint.h"
#include "store/embedded_store.h"

namespace nmc::store {
namespace {

constexpr std::size_t kBlockBytes = 4096;

// A store of a few blocks, and its API as verbs on strings.
class StoreTest : public testing::Test {
 protected:
  ~StoreTest() override { disarm_failpoints(); }

  void open(std::size_t blocks, std::optional<std::size_t> tail_bytes = std::nullopt, std::size_t entries = 0) {
    StoreOptions options;
    options.dram_bytes = blocks * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.tail_bytes = tail_bytes;
    options.index_entries = entries;
    options.clock = &clock_;
    store_ = EmbeddedStore::create(options).value();
  }

  static void fill(std::span<std::byte> bytes, std::string_view key) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(key[i % key.size()]);
  }
  static bool holds(const Pin& pin, std::string_view key) {
    for (std::size_t i = 0; i < pin.bytes().size(); ++i) {
      if (pin.bytes()[i] != static_cast<std::byte>(key[i % key.size()])) return false;
    }
    return !pin.bytes().empty();
  }

  Pin commit_block(std::string_view key) {
    Reservation reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes).value();
    fill(reservation.bytes(), key);
    return store_->commit(std::move(reservation), key).value();
  }
  void put_block(std::string_view key) { commit_block(key); }
  Result<void> put(ObjectClass object_class, std::string_view key, std::size_t bytes) {
    std::string content(bytes, '\0');
    fill(std::as_writable_bytes(std::span(content)), key);
    return store_->put(object_class, key, as_bytes(content));
  }
  static std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

  // "" a miss, "ok", or "wrong bytes".
  std::string get(std::string_view key) {
    const std::optional<Pin> pin = store_->lookup(key);
    if (!pin) return "";
    return holds(*pin, key) ? "ok" : "wrong bytes";
  }

  ManualClock clock_;
  std::unique_ptr<EmbeddedStore> store_;
};

TEST_F(StoreTest, AnObjectIsReadWhereItWasWritten) {
  open(4);
  EXPECT_EQ(get("a"), "");
  put_block("a");
  EXPECT_EQ(get("a"), "ok");
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.objects, 1u);
  EXPECT_EQ(stats.blocks_cached, 1u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.lookups, 2u);
}

TEST_F(StoreTest, EveryBlockOfTheSegmentCanBeUsed) {
  open(37);
  EXPECT_EQ(store_->blocks_available(), 37u);
  auto reservations = store_->reserve_blocks(37).value();
  EXPECT_EQ(store_->blocks_available(), 0u);
  EXPECT_EQ(store_->stats().blocks_reserved, 37u);
  const auto refused = store_->reserve(ObjectClass::kBlock, kBlockBytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr(std::to_string(37 * kBlockBytes) + " reserved"));
  reservations.clear();
  EXPECT_EQ(store_->blocks_available(), 37u);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_F(StoreTest, BlocksAreReservedAllOrNone) {
  open(4);
  const auto one = store_->reserve(ObjectClass::kBlock, kBlockBytes);
  put_block("a");
  EXPECT_FALSE(store_->reserve_blocks(4));
  EXPECT_EQ(get("a"), "ok");  // nothing was evicted for it
  EXPECT_EQ(store_->reserve_blocks(3).value().size(), 3u);
  EXPECT_EQ(get("a"), "");
}

TEST_F(StoreTest, EvictsOldestUnpinnedBlock) {
  open(3);
  const Pin a = commit_block("a");
  put_block("b");
  put_block("c");
  put_block("d");
  EXPECT_EQ(get("a"), "ok");
  EXPECT_EQ(get("b"), "");
  EXPECT_EQ(get("c"), "ok");
  EXPECT_GE(store_->stats().evict_skipped_pinned, 1u);
  EXPECT_EQ(store_->stats().evicted_objects, 1u);
  EXPECT_EQ(store_->stats().evicted_bytes, kBlockBytes);
}

TEST_F(StoreTest, ALookupIsAUse) {
  open(3);
  for (const char* key : {"a", "b", "c"}) put_block(key);
  EXPECT_EQ(get("a"), "ok");
  put_block("d");
  EXPECT_EQ(get("a"), "ok");
  EXPECT_EQ(get("b"), "");
}

TEST_F(StoreTest, AFetchedChainIsEvictedFromItsEnd) {
  open(3);
  const std::vector<std::string> chain = {"k0", "k1", "k2"};
  for (const std::string& key : chain) put_block(key);
  EXPECT_EQ(store_->fetch_run(chain).pins.size(), 3u);
  put_block("x");
  EXPECT_EQ(store_->probe_run(chain), 2u);
  put_block("y");
  EXPECT_EQ(store_->probe_run(chain), 1u);
}

TEST_F(StoreTest, AHeldChainIsEvictedFromItsEndAfterTouchRun) {
  open(3);
  const std::vector<std::string> chain = {"k0", "k1", "k2"};
  {
    std::vector<Pin> pins;
    for (const std::string& key : chain) pins.push_back(commit_block(key));
    store_->touch_run(pins);
  }
  put_block("x");
  EXPECT_EQ(store_->probe_run(chain), 2u);
}

TEST_F(StoreTest, ARunEndsAtTheFirstMiss) {
  open(8);
  for (const char* key : {"k0", "k1", "k3"}) put_block(key);
  const std::vector<std::string> chain = {"k0", "k1", "k2", "k3"};
  EXPECT_EQ(store_->probe_run(chain), 2u);
  const store::Run run = store_->fetch_run(chain);
  ASSERT_EQ(run.pins.size(), 2u);
  EXPECT_TRUE(holds(run.pins[0], "k0"));
  EXPECT_TRUE(holds(run.pins[1], "k1"));
  EXPECT_EQ(run.stop_reason, "");
}

TEST_F(StoreTest, FirstCommitWinsAndTheOtherGetsTheWinner) {
  open(4);
  Reservation first = store_->reserve(ObjectClass::kBlock, kBlockBytes).value();
  Reservation second = store_->reserve(ObjectClass::kBlock, kBlockBytes).value();
  fill(first.bytes(), "first");
  fill(second.bytes(), "second");
  const Pin winner = store_->commit(std::move(first), "key").value();
  const Pin loser = store_->commit(std::move(second), "key").value();
  EXPECT_FALSE(second);
  EXPECT_TRUE(holds(loser, "first"));
  EXPECT_EQ(winner.generation(), loser.generation());
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.commits, 1u);
  EXPECT_EQ(stats.commit_duplicates, 1u);
  EXPECT_EQ(stats.used_bytes, kBlockBytes);
  EXPECT_EQ(stats.reservations, 0u);
  EXPECT_EQ(stats.pins, 2u);
}

TEST_F(StoreTest, ARefusedCommitLeavesTheReservation) {
  open(4);
  Reservation reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes).value();
  fill(reservation.bytes(), "k");
  EXPECT_EQ(store_->commit(std::move(reservation), "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->commit(std::move(reservation), std::string(kKeyBytesMax + 1, 'k')).error().code,
            ErrorCode::kInvalidArgument);
  arm_failpoint("store.commit", FailpointAction::kError);
  EXPECT_EQ(store_->commit(std::move(reservation), "k").error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(reservation);
  EXPECT_TRUE(holds(store_->commit(std::move(reservation), "k").value(), "k"));
}

TEST_F(StoreTest, ARemovedObjectStaysWithItsReadersInLimbo) {
  open(1);
  std::optional<Pin> pin = commit_block("a");
  EXPECT_TRUE(store_->remove("a"));
  EXPECT_FALSE(store_->remove("a"));
  EXPECT_EQ(get("a"), "");
  EXPECT_EQ(store_->stats().limbo_bytes, kBlockBytes);
  EXPECT_EQ(store_->blocks_available(), 0u);
  EXPECT_FALSE(store_->reserve(ObjectClass::kBlock, kBlockBytes));
  EXPECT_TRUE(holds(*pin, "a"));
  pin.reset();
  EXPECT_EQ(store_->stats().limbo_bytes, 0u);
  put_block("b");
  EXPECT_EQ(get("b"), "ok");
}

TEST_F(StoreTest, PinsCountAndMove) {
  open(2);
  Pin pin = commit_block("a");
  Pin copy = pin.duplicate();
  EXPECT_EQ(store_->stats().pins, 2u);
  EXPECT_EQ(store_->stats().blocks_pinned, 1u);
  Pin moved = std::move(pin);
  EXPECT_FALSE(pin);
  EXPECT_EQ(store_->stats().pins, 2u);
  moved = std::move(copy);
  EXPECT_EQ(store_->stats().pins, 1u);
  moved = Pin();
  EXPECT_EQ(store_->stats().pins, 0u);
}

TEST_F(StoreTest, KeysOfAnyLengthAreFound) {
  open(64);
  for (const std::size_t length : {1, 8, 68, 71, 72, 73, 80, 255, 4096}) {
    const std::string key(length, static_cast<char>('a' + length % 26));
    const std::string other = key.substr(1) + "!";
    ASSERT_TRUE(put(ObjectClass::kObject, key, 100)) << length;
    EXPECT_EQ(get(key), "ok") << length;
    EXPECT_EQ(get(other), "") << length;
    EXPECT_TRUE(store_->remove(key)) << length;
    EXPECT_EQ(get(key), "") << length;
  }
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_F(StoreTest, TailsStayBelowTheirCap) {
  open(16, 3000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(ObjectClass::kTail, "t" + std::to_string(i), 1000));
  EXPECT_LE(store_->stats().tail_bytes, 3000u);
  EXPECT_EQ(get("t9"), "ok");
  EXPECT_EQ(get("t8"), "ok");
  EXPECT_EQ(get("t0"), "");
  EXPECT_EQ(put(ObjectClass::kTail, "big", 3001).error().code, ErrorCode::kInvalidArgument);
  const auto pin8 = store_->lookup("t8");
  const auto pin9 = store_->lookup("t9");
  EXPECT_EQ(store_->reserve(ObjectClass::kTail, 2000).error().code, ErrorCode::kResourceExhausted);
}

TEST_F(StoreTest, TailsOffRefusesThem) {
  open(16, 0);
  EXPECT_EQ(put(ObjectClass::kTail, "t", 10).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(StoreTest, AnObjectTakesThePlaceOfTheColdestBlocks) {
  open(8);
  for (int i = 0; i < 8; ++i) put_block("k" + std::to_string(i));
  const Pin pinned = *store_->lookup("k3");
  ASSERT_TRUE(put(ObjectClass::kObject, "object", 3 * kBlockBytes - 100));
  EXPECT_EQ(get("object"), "ok");
  EXPECT_EQ(get("k3"), "ok");
  EXPECT_EQ(store_->stats().evicted_objects, 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get("k" + std::to_string(i)), "") << i;
  for (int i = 4; i < 8; ++i) EXPECT_EQ(get("k" + std::to_string(i)), "ok") << i;
}

TEST_F(StoreTest, TooLargeIsRefusedBeforeAnythingIsEvicted) {
  open(4);
  put_block("a");
  EXPECT_EQ(put(ObjectClass::kObject, "big", 4 * kBlockBytes + 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->reserve(ObjectClass::kBlock, kBlockBytes + 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->reserve(ObjectClass::kObject, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(get("a"), "ok");
}

TEST_F(StoreTest, FetchOfAnotherSizeIsAMissAndCountsAsOne) {
  open(8);
  ASSERT_TRUE(put(ObjectClass::kObject, "k", 100));
  EXPECT_FALSE(store_->fetch("k", ObjectClass::kObject, 99));
  EXPECT_TRUE(store_->fetch("k", ObjectClass::kObject, 100));
  EXPECT_TRUE(store_->fetch("k", ObjectClass::kObject));
  EXPECT_EQ(store_->stats().misses, 1u);
  EXPECT_EQ(store_->stats().hits, 2u);
}

TEST_F(StoreTest, AFullIndexEvicts) {
  open(64, std::nullopt, 4);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(put(ObjectClass::kObject, "k" + std::to_string(i), 64));
  EXPECT_EQ(get("k1"), "");
  EXPECT_EQ(get("k2"), "ok");
  EXPECT_EQ(get("k5"), "ok");
}

TEST_F(StoreTest, BlocksAvailableCountsWhatEvictionCouldFree) {
  open(8);
  for (int i = 0; i < 4; ++i) put_block("k" + std::to_string(i));
  const Pin pin = *store_->lookup("k1");
  const auto reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes);
  ASSERT_TRUE(put(ObjectClass::kObject, "o", 3 * kBlockBytes));
  EXPECT_EQ(store_->blocks_available(), 6u);
  EXPECT_TRUE(store_->reserve_blocks(6));
}

TEST_F(StoreTest, InjectedFaultsAreErrorsAndLeaveNothingBehind) {
  open(1);
  arm_failpoint("store.reserve", FailpointAction::kError);
  EXPECT_EQ(store_->reserve(ObjectClass::kBlock, kBlockBytes).error().code, ErrorCode::kUnavailable);
  put_block("a");
  arm_failpoint("store.evict", FailpointAction::kError);
  EXPECT_EQ(store_->reserve(ObjectClass::kBlock, kBlockBytes).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(get("a"), "ok");
  EXPECT_EQ(store_->stats().reservations, 0u);
  EXPECT_EQ(failpoint_fired("store.evict"), 1u);
}

TEST_F(StoreTest, OptionsThatCannotWorkAreRefused) {
  StoreOptions options;
  options.dram_bytes = 0;
  EXPECT_EQ(EmbeddedStore::create(options).error().code, ErrorCode::kInvalidArgument);
  options.dram_bytes = 1000;
  options.block_bytes = 1001;
  EXPECT_EQ(EmbeddedStore::create(options).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(StoreTest, APinThatOutlivesItsStoreStopsTheProcess) {
  open(1);
  const Pin pin = commit_block("a");
  EXPECT_DEATH(store_.reset(), "1 pins outlive their store");
}

TEST_F(StoreTest, ViewsAreReadOnly) {
  open(1);
  const Pin pin = commit_block("a");
  EXPECT_DEATH(const_cast<std::byte&>(pin.bytes()[0]) = std::byte{0}, "");
}

}  // namespace
}  // namespace nmc::store
