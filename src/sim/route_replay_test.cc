#include "sim/route_replay.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/block_cache.h"

namespace nmc::sim {
namespace {

// Conversations of several turns each, in turn: blocks grow by one a turn behind a first that all share.
Trace conversations(std::uint64_t count, std::uint64_t turns, bool with_sessions) {
  Trace trace("made", 100);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    for (std::uint64_t one = 0; one < count; ++one) {
      std::vector<std::uint64_t> keys = {0};
      for (std::uint64_t block = 0; block <= turn; ++block) keys.push_back(1 + one * 1000 + block);
      TraceRequest request{.arrival_us = static_cast<std::int64_t>((turn * count + one) * 1'000'000),
                           .input_tokens = static_cast<std::uint32_t>(keys.size() * 100)};
      if (with_sessions) request.session = static_cast<std::int64_t>(one);
      EXPECT_TRUE(trace.add(request, keys));
    }
  }
  return trace;
}

ReplayResult replay(const Trace& trace, std::string_view router, const ReplayOptions& options) {
  const auto result = replay_routed(trace, router, options);
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

TEST(RouteReplay, CliquesKeepConversationsWhereTheyAre) {
  for (const bool sessions : {false, true}) {
    SCOPED_TRACE(sessions);
    const Trace trace = conversations(12, 5, sessions);
    const ReplayOptions options{.nodes = 3, .capacity_blocks = 1000};
    const ReplayResult kept = replay(trace, "cliques", options), pool = replay(trace, "one-pool", options);
    EXPECT_EQ(kept.conversations, 12u);
    EXPECT_EQ(kept.moves, 0u);
    // All but the first block on the first turn of each conversation, of which each node has a copy.
    EXPECT_EQ(pool.blocks - pool.hit_blocks, 12 * 5 + 1u);
    EXPECT_EQ(kept.blocks - kept.hit_blocks, 12 * 5 + 3u);
    EXPECT_LT(replay(trace, "round-robin", {.nodes = 5, .capacity_blocks = 1000}).hit_blocks, kept.hit_blocks);
    EXPECT_EQ(replay(trace, "prefix", options).imbalance(3), 3.0);  // all follow the block that all share
  }
}

TEST(RouteReplay, OneNodeIsThePoolForEveryRouter) {
  const Trace trace = conversations(9, 6, false);
  const ReplayOptions options{.nodes = 1, .capacity_blocks = 20};
  const ReplayResult pool = replay(trace, "one-pool", options);
  EXPECT_LT(pool.hit_blocks, pool.blocks);
  for (const char* router : replay_routers()) {
    EXPECT_EQ(replay(trace, router, options).hit_blocks, pool.hit_blocks) << router;
    EXPECT_EQ(replay(trace, router, options).imbalance(1), 1.0) << router;
  }
}

TEST(RouteReplay, TokensAddUpWhoeverRoutes) {
  const Trace trace = conversations(7, 8, true);
  for (const char* router : replay_routers()) {
    const ReplayResult result = replay(trace, router, {.nodes = 4, .capacity_blocks = 15});
    EXPECT_EQ(result.requests, 56u) << router;
    EXPECT_EQ(result.blocks, trace.blocks_total()) << router;
    EXPECT_EQ(result.input_tokens - result.uncached_tokens, result.hit_blocks * 100) << router;  // all blocks are whole
    EXPECT_GE(result.busiest_tokens * 4, result.uncached_tokens - 3) << router;
  }
}

// A small conversation shares its node with one that is worth more than the rest together: the small one leaves, and
// stays where it went; the large one would overload any other node, and stays, too.
TEST(RouteReplay, AnOverloadedNodeSendsConversationsAwayOnce) {
  Trace trace("hot", 100);
  std::map<std::int64_t, std::vector<std::uint64_t>> said;
  std::int64_t now = 0;
  const auto say = [&](std::int64_t session, std::uint64_t blocks) {
    std::vector<std::uint64_t>& keys = said[session];
    for (std::uint64_t i = 0; i < blocks; ++i) keys.push_back(static_cast<std::uint64_t>(session) * 1000 + keys.size());
    const auto tokens = static_cast<std::uint32_t>(keys.size() * 100);
    ASSERT_TRUE(trace.add({.arrival_us = now++, .input_tokens = tokens, .session = session}, keys));
  };
  const std::int64_t small = 0, others[] = {1, 2}, large = 3;
  say(small, 1);
  for (const std::int64_t other : others) say(other, 2);
  say(large, 30);  // beside the small one, which was the least of all
  for (int turn = 0; turn < 3; ++turn) say(small, 1);
  say(large, 1);
  const ReplayOptions options{.nodes = 3, .capacity_blocks = 1000};
  const ReplayResult moved = replay(trace, "cliques", options);
  EXPECT_EQ(moved.moves, 1u);
  EXPECT_EQ(moved.overloaded, 2u);
  ReplayOptions calm = options;
  calm.policy.overload_floor = 1e6;
  const ReplayResult stayed = replay(trace, "cliques", calm);
  EXPECT_EQ(stayed.moves + stayed.overloaded, 0u);
  EXPECT_EQ(stayed.hit_blocks, moved.hit_blocks + 1);  // the move computed a block again
}

TEST(RouteReplay, ARouterThatIsNoneIsRefusedWithTheNames) {
  const Trace trace = conversations(1, 1, false);
  const auto result = replay_routed(trace, "best", {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("cliques, prefix+load"), std::string::npos);
  EXPECT_FALSE(replay_routed(trace, "cliques", {.nodes = 0}));
}

}  // namespace
}  // namespace nmc::sim
