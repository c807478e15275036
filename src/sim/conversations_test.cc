#include "sim/conversations.h"

#include <gtest/gtest.h>

#include <limits>

namespace nmc::sim {
namespace {

constexpr std::uint64_t kSeeds[] = {11, 12, 13, 14};

struct Mean {
  double extra = 0;  // share of prefill
  double moves_per_turn = 0;
  double peak = 0;  // the highest
  std::uint64_t moves = 0, turns = 0;
};

Mean mean_of(ConversationOptions options) {
  Mean mean;
  for (const std::uint64_t seed : kSeeds) {
    options.seed = seed;
    const auto result = simulate_conversations(options);
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->turns, options.measured_turns);
    EXPECT_EQ(result->overloaded_turns, result->moves + result->denied_moves);
    mean.extra += result->extra_prefill_tokens / result->prefill_tokens / std::size(kSeeds);
    mean.moves += result->moves;
    mean.turns += result->turns;
    mean.peak = std::max(mean.peak, result->peak);
  }
  mean.moves_per_turn = static_cast<double>(mean.moves) / static_cast<double>(mean.turns);
  return mean;
}

// At 8 a node moves add about a thousandth to prefill, and at 32 nothing ever moves, with a factor of 2.
TEST(Conversations, MoveRarelyWhereThereAreFewAndNeverWhereThereAreMany) {
  const Mean few = mean_of({.sigma = 1.0});
  EXPECT_GT(few.extra, 0.0002);
  EXPECT_LT(few.extra, 0.004);
  EXPECT_LT(few.moves_per_turn, 0.0002);
  const Mean many = mean_of({.per_node = 32, .sigma = 1.0});
  EXPECT_EQ(many.moves, 0u);
  EXPECT_EQ(many.turns, 720'000u);
  EXPECT_LT(many.peak, 1.6);
}

TEST(Conversations, ALowerFactorMovesFarMore) {
  const Mean strict = mean_of({.policy = {.overload_factor = 1.5}});
  EXPECT_GT(strict.extra, 0.015);
  EXPECT_LT(strict.extra, 0.023);
}

// Newcomers that weigh nothing until they have answered arrive at one node as a herd.
TEST(Conversations, ReservationAtPlacementKeepsHerdsApart) {
  const Mean reserved = mean_of({.nodes = 64}), herd = mean_of({.nodes = 64, .reserve = false});
  EXPECT_GT(herd.extra, 10 * reserved.extra);
  EXPECT_GT(herd.extra, 0.01);
}

TEST(Conversations, WithoutAnAlarmNothingMoves) {
  const Mean never = mean_of({.policy = {.overload_factor = std::numeric_limits<double>::infinity()}, .sigma = 1.5});
  EXPECT_EQ(never.moves, 0u);
  EXPECT_EQ(never.extra, 0);
  const Mean calm = mean_of({.policy = {.overload_floor = 1e12}, .sigma = 1.5});
  EXPECT_EQ(calm.moves, 0u);
}

TEST(Conversations, AHeavyTailMovesMoreAndCountingHeadsLess) {
  const Mean base = mean_of({}), heavy = mean_of({.sigma = 1.5});
  EXPECT_GT(heavy.extra, 5 * base.extra);
  EXPECT_EQ(mean_of({.load_by = LoadBy::kConversations}).moves, 0u);
}

TEST(Conversations, RunWithOpenArrivalsAndHeavyTailedTurns) {
  for (const ConversationOptions& options :
       {ConversationOptions{.arrivals = Arrivals::kOpen}, ConversationOptions{.turn_counts = TurnCounts::kPareto}}) {
    const Mean mean = mean_of(options);
    EXPECT_LT(mean.extra, 0.004);
    EXPECT_GT(mean.peak, 1);
  }
}

TEST(Conversations, TheSameSeedGivesTheSame) {
  const ConversationOptions options{.policy = {.overload_factor = 1.5}, .measured_turns = 50'000, .seed = 3};
  const auto first = simulate_conversations(options), second = simulate_conversations(options);
  EXPECT_EQ(first->moves, second->moves);
  EXPECT_GT(first->moves, 0u);
  EXPECT_EQ(first->extra_prefill_tokens, second->extra_prefill_tokens);
  ConversationOptions other = options;
  other.seed = 4;
  EXPECT_NE(simulate_conversations(other)->prefill_tokens, first->prefill_tokens);
}

TEST(Conversations, WhatMeansNothingIsRefused) {
  EXPECT_FALSE(simulate_conversations({.nodes = 0}));
  EXPECT_FALSE(simulate_conversations({.policy = {.overload_factor = 1}}));
  EXPECT_FALSE(simulate_conversations({.turns = 1}));
  EXPECT_FALSE(simulate_conversations({.think_s = 0}));
  EXPECT_FALSE(simulate_conversations({.sigma = -1}));
}

}  // namespace
}  // namespace nmc::sim
