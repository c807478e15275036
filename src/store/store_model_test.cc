// The store against a naive model under random operations, by one thread and by several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "store/allocator.h"
#include "store/embedded_store.h"

namespace nmc::store {
namespace {

constexpr std::size_t kBlockBytes = 512;
constexpr std::size_t kBlocks = 48;
constexpr std::size_t kTailBytes = 4096;

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(keyed_random(seed, 0, i / 8) >> i % 8 * 8);
}
bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(keyed_random(seed, 0, i / 8) >> i % 8 * 8)) return false;
  }
  return true;
}

// What the store should hold. An object that the store evicted is found missing, and then exactly as many are missing
// as the store says it evicted.
class StoreModelTest : public testing::Test {
 protected:
  struct Object {
    ObjectClass object_class;
    std::size_t bytes;
    std::uint64_t seed;
    std::uint64_t generation;
  };
  struct Held {
    std::string key;
    Pin pin;
    Object object;
  };
  struct Open {
    Reservation reservation;
    std::uint64_t seed;
  };

  StoreModelTest() {
    StoreOptions options;
    options.dram_bytes = kBlocks * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.tail_bytes = kTailBytes;
    options.index_entries = 80;
    store_ = EmbeddedStore::create(options).value();
  }

  std::string random_key() {
    const std::uint64_t i = rng_.below(120);
    return i % 10 == 9 ? std::string(90 + i, 'k') + std::to_string(i) : "key" + std::to_string(i);
  }
  std::string random_present_key() {
    if (model_.empty()) return random_key();
    return std::next(model_.begin(), static_cast<long>(rng_.below(model_.size())))->first;
  }

  void reserve() {
    const auto object_class = static_cast<ObjectClass>(rng_.below(3));
    const std::size_t bytes = object_class == ObjectClass::kBlock ? kBlockBytes : 1 + rng_.below(1500);
    auto reservation = store_->reserve(object_class, bytes);
    settle();  // it may have evicted
    if (!reservation) {
      ASSERT_EQ(reservation.error().code, ErrorCode::kResourceExhausted) << reservation.error().message;
      ++refused_;
      return;
    }
    ASSERT_EQ(reservation->bytes().size(), bytes);
    const std::uint64_t seed = rng_.next();
    fill(reservation->bytes(), seed);
    open_.push_back({*std::move(reservation), seed});
  }

  void commit() {
    if (open_.empty()) return;
    const std::size_t which = rng_.below(open_.size());
    Open open = std::move(open_[which]);
    open_.erase(open_.begin() + static_cast<long>(which));
    const std::string key = random_key();
    ASSERT_TRUE(holds(open.reservation.bytes(), open.seed)) << "somebody wrote into a reservation";
    const Object mine = {open.reservation.object_class(), open.reservation.bytes().size(), open.seed,
                         open.reservation.generation()};
    auto pin = store_->commit(std::move(open.reservation), key);
    settle();  // the space of a long key may have cost something
    if (!pin) {
      ASSERT_EQ(pin.error().code, ErrorCode::kResourceExhausted);
      ASSERT_GT(key.size(), 72u);
      open_.push_back(std::move(open));
      return;
    }
    const auto known = model_.find(key);
    if (known == model_.end()) {
      ASSERT_EQ(pin->generation(), mine.generation);
      model_[key] = mine;
    } else {
      ASSERT_EQ(pin->generation(), known->second.generation);
    }
    check(*pin, model_.at(key));
    if (rng_.below(4) == 0) held_.push_back({key, *std::move(pin), model_.at(key)});
  }

  void lookup(const std::string& key) {
    std::optional<Pin> pin = store_->lookup(key);
    const auto known = model_.find(key);
    ASSERT_EQ(pin.has_value(), known != model_.end()) << key;
    if (!pin) return;
    check(*pin, known->second);
    if (held_.size() < 12 && rng_.below(4) == 0) held_.push_back({key, *std::move(pin), known->second});
  }

  void remove() {
    const std::string key = rng_.below(4) == 0 ? random_key() : random_present_key();
    ASSERT_EQ(store_->remove(key), model_.erase(key) == 1) << key;
  }

  void unpin() {
    if (held_.empty()) return;
    const std::size_t which = rng_.below(held_.size());
    check(held_[which].pin, held_[which].object);  // even when it was removed long ago
    held_.erase(held_.begin() + static_cast<long>(which));
  }

  static void check(const Pin& pin, const Object& object) {
    ASSERT_EQ(pin.bytes().size(), object.bytes);
    ASSERT_EQ(pin.generation(), object.generation);
    ASSERT_TRUE(holds(pin.bytes(), object.seed));
  }

  // Takes what was evicted out of the model: as many as the store says, none of them pinned.
  void settle() {
    const std::uint64_t evicted = store_->stats().evicted_objects;
    std::uint64_t missing = 0;
    for (auto it = model_.begin(); it != model_.end();) {
      if (store_->probe_run(std::vector<std::string>{it->first}) == 1) {
        ++it;
        continue;
      }
      for (const Held& held : held_)
        ASSERT_FALSE(held.object.generation == it->second.generation) << "evicted under a pin";
      ++missing;
      it = model_.erase(it);
    }
    ASSERT_EQ(missing, evicted - evicted_);
    evicted_ = evicted;
  }

  void check_stats() {
    const StoreStats stats = store_->stats();
    std::map<std::uint64_t, std::uint64_t> space;  // by generation: objects, reservations, and what only a pin keeps
    std::uint64_t blocks_cached = 0, blocks_reserved = 0, tails = 0, limbo = 0, keys = 0;
    const auto round = [](std::size_t bytes) { return OffsetAllocator::round_up(bytes); };
    for (const auto& [key, object] : model_) {
      space[object.generation] = round(object.bytes);
      blocks_cached += object.object_class == ObjectClass::kBlock;
      if (key.size() > 72) keys += round(key.size());
      if (object.object_class == ObjectClass::kTail) tails += round(object.bytes);
    }
    std::map<std::uint64_t, bool> pinned_blocks;
    for (const Held& held : held_) {
      const auto known = model_.find(held.key);
      if (known != model_.end() && known->second.generation == held.object.generation) {
        if (held.object.object_class == ObjectClass::kBlock) pinned_blocks[held.object.generation] = true;
      } else if (!space.contains(held.object.generation)) {
        space[held.object.generation] = round(held.object.bytes);
        limbo += round(held.object.bytes);
        if (held.key.size() > 72) keys += round(held.key.size());
        if (held.object.object_class == ObjectClass::kTail) tails += round(held.object.bytes);
      }
    }
    for (const Open& open : open_) {
      space[open.reservation.generation()] = round(open.reservation.bytes().size());
      blocks_reserved += open.reservation.object_class() == ObjectClass::kBlock;
      if (open.reservation.object_class() == ObjectClass::kTail) tails += round(open.reservation.bytes().size());
    }
    std::uint64_t used = keys;
    for (const auto& [generation, bytes] : space) used += bytes;
    ASSERT_EQ(stats.used_bytes, used);
    ASSERT_EQ(stats.objects, model_.size());
    ASSERT_EQ(stats.reservations, open_.size());
    ASSERT_EQ(stats.pins, held_.size());
    ASSERT_EQ(stats.blocks_cached, blocks_cached);
    ASSERT_EQ(stats.blocks_reserved, blocks_reserved);
    ASSERT_EQ(stats.blocks_pinned, pinned_blocks.size());
    ASSERT_EQ(stats.limbo_bytes, limbo);
    ASSERT_EQ(stats.tail_bytes, tails);
    ASSERT_LE(stats.tail_bytes, kTailBytes);
  }

  Rng rng_{0};
  std::unique_ptr<EmbeddedStore> store_;
  std::map<std::string, Object> model_;
  std::vector<Open> open_;
  std::vector<Held> held_;
  std::uint64_t evicted_ = 0;
  int refused_ = 0;
};

TEST_F(StoreModelTest, AgreesWithANaiveModelUnderRandomOperations) {
  constexpr std::uint64_t kSeed = 20250301;
  constexpr int kSteps = 20'000;
  std::cout << "seed " << kSeed << "\n";
  rng_ = Rng(kSeed);
  for (int i = 0; i < kSteps; ++i) {
    switch (rng_.below(9)) {
      case 0:
      case 1:
        if (open_.size() < 12) reserve();
        break;
      case 2:
      case 3: commit(); break;
      case 4: lookup(random_key()); break;
      case 5: lookup(random_present_key()); break;
      case 6: remove(); break;
      case 7: unpin(); break;
      case 8:
        if (rng_.below(4) == 0 && !open_.empty()) open_.pop_back();
        break;
    }
    if (HasFatalFailure()) FAIL() << "at step " << i;
    if (i % 8 == 0) check_stats();
    if (HasFatalFailure()) FAIL() << "at step " << i;
  }
  EXPECT_GT(evicted_, 100u);
  open_.clear();
  held_.clear();
  while (!model_.empty()) {
    const std::string key = model_.begin()->first;
    EXPECT_TRUE(store_->remove(key));
    model_.erase(key);
  }
  check_stats();
  EXPECT_EQ(store_->stats().used_bytes, 0u);
  EXPECT_EQ(store_->blocks_available(), kBlocks);
}

TEST_F(StoreModelTest, ReserveBlocksGetsWhatBlocksAvailablePromises) {
  rng_ = Rng(99);
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 20; ++i) {
      if (open_.size() < 12) reserve();
      commit();
      if (held_.size() > 8) unpin();
      if (HasFatalFailure()) FAIL() << "in round " << round;
    }
    const std::size_t available = store_->blocks_available();
    auto all = store_->reserve_blocks(available);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), available);
    settle();
    for (const Held& held : held_) check(held.pin, held.object);
    for (const Open& open : open_) ASSERT_TRUE(holds(open.reservation.bytes(), open.seed));
  }
}

// Objects say themselves what they are: {key's hash, seed} and then bytes of the seed.
class StoreThreadsTest : public testing::Test {
 protected:
  static constexpr int kThreads = 4;
  static constexpr std::size_t kKeys = 64, kKept = 4;

  StoreThreadsTest() {
    StoreOptions options;
    options.dram_bytes = 40 * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.index_entries = 64;
    store_ = EmbeddedStore::create(options).value();
  }

  static std::string key_of(std::size_t i) { return "key" + std::to_string(i); }
  static void write(std::span<std::byte> bytes, std::string_view key, std::uint64_t seed) {
    const std::array<std::uint64_t, 2> head = {checksum64(key), seed};
    std::memcpy(bytes.data(), head.data(), 16);
    fill(bytes.subspan(16), seed);
  }
  static bool reads_right(const Pin& pin, std::string_view key) {
    std::array<std::uint64_t, 2> head{};
    std::memcpy(head.data(), pin.bytes().data(), 16);
    return head[0] == checksum64(key) && holds(pin.bytes().subspan(16), head[1]);
  }

  void work(std::uint64_t seed, int steps) {
    Rng rng(seed);
    std::vector<std::pair<std::string, Pin>> held;
    for (int i = 0; i < steps; ++i) {
      const std::size_t which = rng.below(kKeys);
      const std::string key = key_of(which);
      switch (rng.below(5)) {
        case 0:
        case 1: {
          auto reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes);
          if (!reservation) break;
          write(reservation->bytes(), key, rng.next());
          if (rng.below(8) == 0) break;  // aborted
          auto pin = store_->commit(*std::move(reservation), key);
          if (!pin || !reads_right(*pin, key)) ++wrong_;
          break;
        }
        case 2: {
          std::optional<Pin> pin = store_->lookup(key);
          if (!pin && which < kKept) ++missed_;
          if (!pin) break;
          if (!reads_right(*pin, key)) ++wrong_;
          held.emplace_back(key, *std::move(pin));
          break;
        }
        case 3: {
          if (which >= kKept) store_->remove(key);
          break;
        }
        case 4: {
          std::vector<std::string> keys = {key_of(0), key_of(1), key};
          const store::Run run = store_->fetch_run(keys);
          if (run.pins.size() < 2) ++missed_;
          for (std::size_t p = 0; p < run.pins.size(); ++p) wrong_ += !reads_right(run.pins[p], keys[p]);
          break;
        }
      }
      if (held.size() > 3) {
        if (!reads_right(held.front().second, held.front().first)) ++wrong_;
        held.erase(held.begin());
      }
    }
  }

  std::unique_ptr<EmbeddedStore> store_;
  std::atomic<int> wrong_{0}, missed_{0};
};

TEST_F(StoreThreadsTest, ThreadsReadRightAndNeverMissWhatStays) {
  constexpr std::uint64_t kSeed = 77;
  std::cout << "seed " << kSeed << "\n";
  std::vector<Pin> kept;
  for (std::size_t i = 0; i < kKept; ++i) {
    Reservation reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes).value();
    write(reservation.bytes(), key_of(i), i);
    kept.push_back(store_->commit(std::move(reservation), key_of(i)).value());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] { work(kSeed + static_cast<std::uint64_t>(t), 10'000); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong_.load(), 0);
  EXPECT_EQ(missed_.load(), 0);
  kept.clear();
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.reservations, 0u);
  EXPECT_EQ(stats.limbo_bytes, 0u);
  EXPECT_EQ(stats.used_bytes, stats.objects * kBlockBytes);
  EXPECT_EQ(stats.commits, stats.objects + stats.evicted_objects + stats.removes);
  std::size_t present = 0;
  for (std::size_t i = 0; i < kKeys; ++i) present += store_->lookup(key_of(i)).has_value();
  EXPECT_EQ(present, stats.objects);
}

}  // namespace
}  // namespace nmc::store
