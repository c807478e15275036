#include "router/policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace nmc::router {
namespace {

using engine::PlacementPolicy;
using engine::PlacementRequest;
using engine::WorkerLoad;

std::unique_ptr<PlacementPolicy> policy(std::string_view name) {
  auto made = create_policy(name);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

// Idle workers prefill-0, prefill-1, ... with room for anything.
std::vector<WorkerLoad> idle(std::size_t count) {
  std::vector<WorkerLoad> workers(count);
  for (std::size_t i = 0; i < count; ++i) {
    workers[i].name = "prefill-" + std::to_string(i);
    workers[i].blocks_available = 1'000'000;
  }
  return workers;
}

std::vector<std::size_t> choices(PlacementPolicy& policy, const std::vector<WorkerLoad>& workers, std::size_t count,
                                 PlacementRequest request = {1000, 63}) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(policy.choose(request, workers));
  return chosen;
}

using Chosen = std::vector<std::size_t>;

TEST(CreatePolicy, EveryNameMakesThePolicyOfThatName) {
  EXPECT_EQ(policy_names().size(), 4u);
  for (const char* name : policy_names()) EXPECT_STREQ(policy(name)->name(), name);
  EXPECT_STREQ(policy(kDefaultPolicy)->name(), kDefaultPolicy);
}

TEST(CreatePolicy, AnotherNameIsRefusedWithThoseThatAre) {
  const auto made = create_policy("random");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(made.error().message,
            "placement policy \"random\" isn't known; expected one of round-robin, least-load, prefix, prefix+load");
}

TEST(AnyPolicy, IdleWorkersTakeTurns) {
  for (const char* name : policy_names()) {
    EXPECT_EQ(choices(*policy(name), idle(3), 7), (Chosen{0, 1, 2, 0, 1, 2, 0})) << name;
  }
}

TEST(AnyPolicy, AWorkerThatComesBackTakesOneTurnAndNotAllThatItMissed) {
  for (const char* name : policy_names()) {
    const auto made = policy(name);
    const std::vector<WorkerLoad> both = idle(2);
    choices(*made, both, 2);
    choices(*made, {both[0]}, 5);
    EXPECT_EQ(choices(*made, both, 4), (Chosen{1, 0, 1, 0})) << name;
  }
}

TEST(AnyPolicy, TheOnlyCandidateIsChosenWhateverItsState) {
  std::vector<WorkerLoad> workers = idle(1);
  workers[0].queued_requests = 100;
  workers[0].queued_tokens = 1'000'000;
  workers[0].matched_tokens = 2000;  // more than the prompt has, were the directory wrong
  workers[0].blocks_available = 0;
  for (const char* name : policy_names()) EXPECT_EQ(choices(*policy(name), workers, 2), (Chosen{0, 0})) << name;
}

TEST(RoundRobin, TakesNoNoticeOfLoadOrMatch) {
  std::vector<WorkerLoad> workers = idle(2);
  workers[0].running_requests = 5;
  workers[0].running_tokens = 5000;
  workers[1].matched_tokens = 1000;
  EXPECT_EQ(choices(*policy("round-robin"), workers, 4), (Chosen{0, 1, 0, 1}));
}

TEST(LeastLoad, CountsTokensQueuedAndRunning) {
  std::vector<WorkerLoad> workers = idle(3);
  workers[0].queued_requests = 1;
  workers[0].queued_tokens = 300;
  workers[1].running_requests = 1;
  workers[1].running_tokens = 200;
  workers[2].queued_requests = 2;
  workers[2].queued_tokens = 50;
  workers[2].running_requests = 1;
  workers[2].running_tokens = 100;
  workers[0].matched_tokens = 1000;
  EXPECT_EQ(choices(*policy("least-load"), workers, 2), (Chosen{2, 2}));
}

TEST(LeastLoad, OfEqualTokensTheOneWithFewerRequests) {
  std::vector<WorkerLoad> workers = idle(2);
  workers[0].running_requests = 2;
  workers[0].running_tokens = 100;
  workers[1].queued_requests = 1;
  workers[1].queued_tokens = 100;
  EXPECT_EQ(choices(*policy("least-load"), workers, 2), (Chosen{1, 1}));
}

TEST(LongestPrefix, WinsWhateverTheLoadAndOfEqualOnesTheLeastLoaded) {
  std::vector<WorkerLoad> workers = idle(3);
  workers[1].matched_tokens = workers[2].matched_tokens = 512;
  workers[1].queued_tokens = 100'000;
  workers[2].queued_tokens = 99'999;
  EXPECT_EQ(choices(*policy("prefix"), workers, 2), (Chosen{2, 2}));
}

TEST(PrefixAndLoad, AMatchIsWorthTheTokensItSaves) {
  std::vector<WorkerLoad> workers = idle(2);
  workers[1].matched_tokens = 512;
  for (const auto part : {&WorkerLoad::queued_tokens, &WorkerLoad::running_tokens}) {
    workers[1].*part = 511;
    EXPECT_EQ(policy("prefix+load")->choose({1000, 63}, workers), 1u);
    workers[1].*part = 513;
    EXPECT_EQ(policy("prefix+load")->choose({1000, 63}, workers), 0u);
    workers[1].*part = 0;
  }
}

TEST(PrefixAndLoad, APrefixThatAllHoldMovesNothing) {
  std::vector<WorkerLoad> cold = idle(4);
  for (std::size_t i = 0; i < cold.size(); ++i) cold[i].queued_tokens = 100 * (4 - i);
  std::vector<WorkerLoad> warm = cold;
  for (WorkerLoad& worker : warm) worker.matched_tokens = 900;
  EXPECT_EQ(choices(*policy("prefix+load"), cold, 3), choices(*policy("prefix+load"), warm, 3));
  EXPECT_EQ(choices(*policy("prefix+load"), warm, 1), Chosen{3});
}

TEST(PrefixAndLoad, WhatMostHoldIsNotHeldAgainstTheOneThatLacksIt) {
  std::vector<WorkerLoad> workers = idle(4);
  for (std::size_t i = 0; i < 3; ++i) workers[i].matched_tokens = 900;
  // The newcomer gets its turn among idle ones, and gets the request as soon as it is the least loaded.
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 4), (Chosen{0, 1, 2, 3}));
  for (std::size_t i = 0; i < 3; ++i) workers[i].running_tokens = 10;
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 2), (Chosen{3, 3}));
  // `prefix` keeps it cold for good.
  for (const std::size_t chosen : choices(*policy("prefix"), workers, 20)) EXPECT_NE(chosen, 3u);
}

TEST(PrefixAndLoad, CountsOfAMatchWhatGoesBeyondMostOnly) {
  std::vector<WorkerLoad> workers = idle(3);
  for (WorkerLoad& worker : workers) worker.matched_tokens = 800;
  workers[0].matched_tokens = 900;  // a conversation of its own after the system prompt
  workers[0].queued_tokens = 99;
  EXPECT_EQ(policy("prefix+load")->choose({1000, 63}, workers), 0u);
  workers[0].queued_tokens = 101;
  EXPECT_NE(policy("prefix+load")->choose({1000, 63}, workers), 0u);
}

TEST(PrefixAndLoad, HalfOfThemIsNotMost) {
  std::vector<WorkerLoad> workers = idle(4);
  workers[2].matched_tokens = workers[3].matched_tokens = 500;
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 4), (Chosen{2, 3, 2, 3}));
}

TEST(PrefixAndLoad, ACandidateWithoutBlocksComesLast) {
  std::vector<WorkerLoad> workers = idle(3);
  workers[0].blocks_available = 62;
  workers[0].matched_tokens = 1000;
  workers[1].queued_tokens = 700;
  workers[2].blocks_available = 63;
  workers[2].queued_tokens = 800;
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 2), (Chosen{1, 1}));
  workers[1].blocks_available = 0;
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 2), (Chosen{2, 2}));
  workers[2].blocks_available = 0;  // none has: the score again
  EXPECT_EQ(choices(*policy("prefix+load"), workers, 2), (Chosen{0, 0}));
}

// Requests of 40 conversations under one system prompt, the workers remembering all they computed, each choice at once
// counted as load that is worked off at the pace of all four. What the score is for: nearly all of what one big cache
// would save, and the work spread evenly.
TEST(PrefixAndLoad, KeepsConversationsTogetherAndTheLoadEven) {
  constexpr std::uint64_t kSeed = 8;
  std::cout << "seed " << kSeed << "\n";
  constexpr std::size_t kWorkers = 4, kConversations = 40, kSystem = 1000, kTurn = 200, kRequests = 4000;
  struct Outcome {
    std::size_t computed = 0;  // tokens, by all
    double imbalance = 0;      // of the busiest, by the mean
    std::size_t best = 0;      // tokens one pool would have computed
  };
  const auto replay = [&](std::string_view name) {
    Rng rng(kSeed);
    const auto made = policy(name);
    std::vector<std::vector<std::size_t>> held(kWorkers, std::vector<std::size_t>(kConversations, 0));
    std::vector<bool> knows_system(kWorkers, false);
    std::vector<std::size_t> length(kConversations, kSystem), backlog(kWorkers, 0), computed(kWorkers, 0);
    Outcome outcome{.best = kSystem};
    for (std::size_t i = 0; i < kRequests; ++i) {
      const std::size_t conversation = rng.below(kConversations);
      // A conversation that has become long starts again, as another one.
      if (length[conversation] >= kSystem + 20 * kTurn) {
        length[conversation] = kSystem;
        for (auto& worker : held) worker[conversation] = 0;
      }
      const std::size_t prompt = length[conversation] += kTurn;
      outcome.best += kTurn;
      std::vector<WorkerLoad> workers = idle(kWorkers);
      for (std::size_t w = 0; w < kWorkers; ++w) {
        workers[w].queued_tokens = backlog[w];
        workers[w].queued_requests = (backlog[w] + kTurn - 1) / kTurn;
        workers[w].matched_tokens = std::max(held[w][conversation], knows_system[w] ? kSystem : 0);
      }
      const std::size_t chosen = made->choose({prompt, 1}, workers);
      const std::size_t work = prompt - workers[chosen].matched_tokens;
      knows_system[chosen] = true;
      held[chosen][conversation] = prompt;
      backlog[chosen] += work;
      computed[chosen] += work;
      for (std::size_t& tokens : backlog) tokens -= std::min<std::size_t>(tokens, rng.below(2 * kTurn / kWorkers + 20));
    }
    outcome.computed = std::accumulate(computed.begin(), computed.end(), std::size_t{0});
    outcome.imbalance = static_cast<double>(*std::max_element(computed.begin(), computed.end())) * kWorkers /
                        static_cast<double>(outcome.computed);
    return outcome;
  };
  const Outcome both = replay("prefix+load"), prefix = replay("prefix"), load = replay("least-load");
  for (const auto& [name, outcome] : {std::pair{"prefix+load", both}, {"prefix", prefix}, {"least-load", load}}) {
    std::cout << name << ": computed " << outcome.computed << " of at least " << outcome.best << ", imbalance "
              << outcome.imbalance << "\n";
  }
  EXPECT_LT(static_cast<double>(both.computed), 1.15 * static_cast<double>(both.best));
  EXPECT_LT(both.imbalance, 1.15);
  EXPECT_GT(prefix.imbalance, 3.9);  // all go to whoever had the system prompt first
  EXPECT_GT(load.computed, 2 * both.computed);
}

TEST(PolicyDeathTest, NoCandidatesIsTheCallersMistake) {
  EXPECT_DEATH(policy("prefix")->choose({}, {}), "nobody to choose from");
}

}  // namespace
}  // namespace nmc::router
