// The simulator beside the store itself: the same trace, one request at a time, into a real embedded store.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "sim/instant.h"
#include "sim/trace_reader.h"
#include "sim/workload.h"
#include "store/embedded_store.h"

namespace nmc::sim {
namespace {

constexpr std::size_t kBlockBytes = 4096;

struct Counted {
  std::uint64_t hit_blocks = 0, any_hit_blocks = 0, inserted_blocks = 0, evicted_blocks = 0;
  bool operator==(const Counted&) const = default;
};

std::string key_of(std::uint64_t key) { return fmt::format("block/{:016x}", key); }

// Lookups and puts as the rules have them; content is checked on the way.
class RealStore {
 public:
  explicit RealStore(std::size_t capacity_blocks) {
    store::StoreOptions options;
    options.dram_bytes = capacity_blocks * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.tail_bytes = 0;
    options.clock = &clock_;
    store_ = std::move(store::EmbeddedStore::create(options).value());
    EXPECT_EQ(store_->blocks_total(), capacity_blocks);
  }

  void serve(const Trace& trace, const TraceRequest& request) {
    std::vector<std::string> keys;
    for (const std::uint32_t block : trace.blocks_of(request)) keys.push_back(key_of(trace.key_of(block)));
    counted_.hit_blocks += store_->probe_run(keys);
    for (const std::string& key : keys) counted_.any_hit_blocks += store_->probe_run(std::span(&key, 1));
    for (const std::string& key : keys) {
      clock_.advance(Nanos(2048));  // beyond the resolution of the store's stamps
      if (const auto pin = store_->lookup(key)) {
        ASSERT_EQ(std::memcmp(pin->bytes().data(), key.data(), key.size()), 0);
        continue;
      }
      auto reservation = store_->reserve(store::ObjectClass::kBlock, kBlockBytes);
      ASSERT_TRUE(reservation) << reservation.error().message;
      std::memcpy(reservation->bytes().data(), key.data(), key.size());
      ASSERT_TRUE(store_->commit(std::move(*reservation), key));
    }
  }

  Counted counted() const {
    Counted counted = counted_;
    const store::StoreStats stats = store_->stats();
    counted.inserted_blocks = stats.commits - stats.commit_duplicates;
    counted.evicted_blocks = stats.evicted_objects;
    return counted;
  }

 private:
  ManualClock clock_;
  std::unique_ptr<store::EmbeddedStore> store_;
  Counted counted_;
};

Counted simulated(const Trace& trace, std::uint64_t capacity_blocks) {
  const HitCounts counts = *replay_instant(trace, "lru", capacity_blocks, {});
  return {counts.hit_blocks, counts.any_hit_blocks, counts.inserted_blocks, counts.evicted_blocks};
}

Counted real(const Trace& trace, std::size_t capacity_blocks) {
  RealStore store(capacity_blocks);
  for (const TraceRequest& request : trace.requests()) store.serve(trace, request);
  return store.counted();
}

Trace random_trace(std::uint64_t seed) {
  Rng rng(seed);
  Trace trace("random", 4);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint64_t> keys(1 + rng.below(8));
    for (std::uint64_t& key : keys) key = rng.below(1 + rng.below(120));
    TraceRequest request;
    request.input_tokens = static_cast<std::uint32_t>(4 * keys.size());
    EXPECT_TRUE(trace.add(request, keys));
  }
  return trace;
}

void expect_equal(const Trace& trace, std::size_t capacity_blocks) {
  const Counted expected = simulated(trace, capacity_blocks), found = real(trace, capacity_blocks);
  EXPECT_EQ(found.hit_blocks, expected.hit_blocks) << capacity_blocks;
  EXPECT_EQ(found.any_hit_blocks, expected.any_hit_blocks) << capacity_blocks;
  EXPECT_EQ(found.inserted_blocks, expected.inserted_blocks) << capacity_blocks;
  EXPECT_EQ(found.evicted_blocks, expected.evicted_blocks) << capacity_blocks;
}

TEST(RealityTest, RandomTracesHitInTheStoreAsInTheSimulator) {
  for (const std::size_t capacity : {1, 2, 7, 33, 100}) expect_equal(random_trace(capacity), capacity);
}

TEST(RealityTest, WorkloadsHitInTheStoreAsInTheSimulator) {
  for (const char* name : workload_names()) {
    const auto trace = make_workload(name, {.seed = 8, .requests = 1000, .documents = 40});
    ASSERT_TRUE(trace);
    SCOPED_TRACE(name);
    expect_equal(*trace, 300);
  }
}

}  // namespace
}  // namespace nmc::sim
