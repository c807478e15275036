#include "sim/instant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/rng.h"
#include "sim/trace_reader.h"

namespace nmc::sim {
namespace {

using testing::HasSubstr;

Trace random_trace(std::uint64_t seed, std::size_t requests) {
  Rng rng(seed);
  Trace trace("random", 4);
  for (std::size_t i = 0; i < requests; ++i) {
    std::vector<std::uint64_t> keys(1 + rng.below(8));
    for (std::uint64_t& key : keys) key = rng.below(1 + rng.below(60));
    TraceRequest request;
    request.arrival_us = static_cast<std::int64_t>(i);
    request.input_tokens = static_cast<std::uint32_t>(4 * keys.size() - rng.below(4));
    EXPECT_TRUE(trace.add(request, keys));
  }
  return trace;
}

HitCounts replay(const Trace& trace, std::string_view policy, std::uint64_t capacity) {
  const Result<HitCounts> counts = replay_instant(trace, policy, capacity, {});
  EXPECT_TRUE(counts);
  return *counts;
}

// The next use looked for from scratch at each step.
std::uint64_t naive_opt_hits(const Trace& trace, std::size_t capacity) {
  std::vector<std::uint32_t> uses;
  for (const TraceRequest& request : trace.requests()) {
    for (const std::uint32_t block : trace.blocks_of(request)) uses.push_back(block);
  }
  std::set<std::uint32_t> cache;
  std::uint64_t hits = 0, at = 0;
  for (const TraceRequest& request : trace.requests()) {
    const auto blocks = trace.blocks_of(request);
    for (const std::uint32_t block : blocks) {
      if (!cache.contains(block)) break;
      ++hits;
    }
    for (const std::uint32_t block : blocks) {
      cache.insert(block);
      ++at;
      if (cache.size() <= capacity) continue;
      const auto next = [&](std::uint32_t b) {
        return std::find(uses.begin() + static_cast<std::ptrdiff_t>(at), uses.end(), b) - uses.begin();
      };
      cache.erase(*std::max_element(cache.begin(), cache.end(),
                                    [&](std::uint32_t a, std::uint32_t b) { return next(a) < next(b); }));
    }
  }
  return hits;
}

TEST(InstantTest, TheOptimumAgreesWithASearchOfTheFuture) {
  for (const std::size_t capacity : {1, 3, 10, 30}) {
    const Trace trace = random_trace(7 + capacity, 200);
    EXPECT_EQ(replay(trace, "opt", capacity).hit_blocks, naive_opt_hits(trace, capacity)) << "capacity " << capacity;
  }
}

TEST(InstantTest, NoPolicyHasMoreCachedBlocksThanTheOptimum) {
  for (const std::uint64_t capacity : {3, 10, 30}) {
    const Trace trace = random_trace(capacity, 400);
    const std::uint64_t bound = replay(trace, "opt", capacity).any_hit_blocks;
    for (const char* policy : policy_names()) {
      // Blocks one by one, but within a request all are looked up before the first is touched: two uses in one request
      // may count differently, which is a few in a thousand here.
      EXPECT_LE(replay(trace, policy, capacity).any_hit_blocks, bound + bound / 50) << policy;
    }
  }
}

TEST(InstantTest, WithoutABoundAllPoliciesAreEqualAndNothingGoes) {
  const Trace trace = random_trace(1, 300);
  const HitCounts first = replay(trace, "lru", kUnbounded);
  EXPECT_GT(first.hit_blocks, 0u);
  for (const char* policy : policy_names()) {
    const HitCounts counts = replay(trace, policy, kUnbounded);
    EXPECT_EQ(counts.hit_blocks, first.hit_blocks) << policy;
    EXPECT_EQ(counts.hit_tokens, first.hit_tokens) << policy;
    EXPECT_EQ(counts.evicted_blocks, 0u) << policy;
    EXPECT_EQ(counts.resident_blocks, trace.blocks_unique()) << policy;
  }
}

TEST(InstantTest, ACapacityOfNoneHoldsNothing) {
  const Trace trace = random_trace(2, 50);
  for (const char* policy : policy_names()) {
    const HitCounts counts = replay(trace, policy, 0);
    EXPECT_EQ(counts.hit_blocks + counts.any_hit_blocks + counts.inserted_blocks, 0u) << policy;
    EXPECT_EQ(counts.input_tokens, trace.input_tokens_total());
  }
}

TEST(InstantTest, MoreRoomNeverCostsLruAHit) {
  const Trace trace = random_trace(3, 500);
  std::uint64_t before = 0;
  for (std::uint64_t capacity = 0; capacity <= 64; ++capacity) {
    const std::uint64_t hits = replay(trace, "lru", capacity).any_hit_blocks;
    EXPECT_GE(hits, before) << capacity;
    before = hits;
  }
}

TEST(InstantTest, AnUnknownPolicyIsRefusedWithTheNames) {
  const auto counts = replay_instant(random_trace(1, 1), "mru", 1, {});
  ASSERT_FALSE(counts);
  EXPECT_THAT(counts.error().message, HasSubstr("opt"));
}

TEST(PrefillCostTest, ReadsAFormula) {
  const auto cost = parse_prefill_cost("2e+0*n^2 + 0.5 + 3*n");
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->fixed_s, 0.5);
  EXPECT_EQ(cost->token_s, 3);
  EXPECT_EQ(cost->token_squared_s, 2);
  EXPECT_DOUBLE_EQ(cost->prompt_s(2, 5), 0.5 + 3 * 3 + 2 * (25 - 4));
  for (const char* text : {"", "x", "1+", "-1", "1*n+2*n", "1*n^3", "nan", "inf*n", "1++1*n", "1 n"}) {
    EXPECT_FALSE(parse_prefill_cost(text)) << text;
  }
}

}  // namespace
}  // namespace nmc::sim
