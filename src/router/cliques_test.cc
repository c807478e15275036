#include "router/cliques.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"

namespace nmc::router {
namespace {

std::vector<NodeLoad> nodes(std::initializer_list<double> loads) {
  std::vector<NodeLoad> made;
  for (const double load : loads) made.push_back({.load = load});
  return made;
}

TEST(CliquePolicy, ANewConversationGoesToTheLeastLoadedNode) {
  const CliquePolicy policy({});
  EXPECT_EQ(policy.choose(nodes({3, 1, 2}), std::nullopt, 100).node, 1u);
  EXPECT_EQ(policy.choose(nodes({0, 0, 0}), std::nullopt, 100).node, 0u);
  std::vector<NodeLoad> equal = nodes({1, 1, 1});
  equal[0].tie = 2;
  equal[1].tie = 1;
  equal[2].tie = 1;
  EXPECT_EQ(policy.choose(equal, std::nullopt, 0).node, 1u);
}

TEST(CliquePolicy, AConversationStaysUnlessItsNodeIsAboveTheFactor) {
  const CliquePolicy policy({.overload_factor = 2});
  EXPECT_EQ(policy.choose(nodes({20, 0, 10}), 0, 1).node, 0u);  // just at twice the mean
  const CliqueChoice choice = policy.choose(nodes({21, 0, 10}), 0, 1);
  EXPECT_EQ(choice.node, 1u);
  EXPECT_TRUE(choice.moved && choice.overloaded);
  EXPECT_EQ(policy.choose(nodes({21, 0, 10}), 2, 1).node, 2u);  // others' overload is not its own
}

TEST(CliquePolicy, NothingMovesWhereItWouldOverload) {
  const std::vector<NodeLoad> loads = nodes({90, 10, 20});  // limit 80
  EXPECT_TRUE(CliquePolicy({}).choose(loads, 0, 70).moved);
  const CliqueChoice denied = CliquePolicy({}).choose(loads, 0, 71);
  EXPECT_EQ(denied.node, 0u);
  EXPECT_TRUE(denied.overloaded);
  EXPECT_FALSE(denied.moved);
  EXPECT_TRUE(CliquePolicy({.checks_destination = false}).choose(loads, 0, 71).moved);
}

TEST(CliquePolicy, BelowTheFloorNoRatioIsOverload) {
  const std::vector<NodeLoad> loads = nodes({90, 0, 0});
  EXPECT_TRUE(CliquePolicy({.overload_floor = 89}).choose(loads, 0, 1).moved);
  const CliqueChoice calm = CliquePolicy({.overload_floor = 90}).choose(loads, 0, 1);
  EXPECT_FALSE(calm.moved || calm.overloaded);
}

TEST(CliquePolicy, OneNodeAndAnInfiniteFactorMoveNothing) {
  EXPECT_FALSE(CliquePolicy({.overload_factor = 1}).choose(nodes({90}), 0, 1).moved);
  const CliquePolicy never({.overload_factor = std::numeric_limits<double>::infinity()});
  EXPECT_FALSE(never.choose(nodes({90, 0, 0}), 0, 1).moved);
}

// On random clusters: what moves was overloaded, and leaves no other node above the limit.
TEST(CliquePolicy, KeepsItsPromisesOnRandomClusters) {
  Rng rng(5);
  int moved = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<NodeLoad> loads(2 + rng.below(8));
    double total = 0;
    for (NodeLoad& node : loads) total += node.load = static_cast<double>(rng.below(1000) * rng.below(4));
    const std::size_t home = rng.below(loads.size());
    const double weight = static_cast<double>(rng.below(1000));
    const double limit = 1.5 * (total / static_cast<double>(loads.size()));
    const CliqueChoice choice = CliquePolicy({.overload_factor = 1.5}).choose(loads, home, weight);
    EXPECT_EQ(choice.overloaded, loads[home].load > limit);
    EXPECT_EQ(choice.moved, choice.node != home);
    if (!choice.moved) continue;
    ++moved;
    EXPECT_LE(loads[choice.node].load + weight, limit);
    EXPECT_EQ(choice.node, least_loaded(loads));
  }
  EXPECT_GT(moved, 100);
}

TEST(NodeContexts, SumToTheirTotal) {
  NodeContexts contexts(3);
  contexts.add(0, 100);
  contexts.add(1, 50);
  contexts.move(0, 2, 100);
  contexts.remove(1, 20);
  EXPECT_EQ(contexts.total(), 130);
  EXPECT_EQ(contexts.loads()[0].load, 0);
  EXPECT_EQ(contexts.loads()[1].load, 30);
  EXPECT_EQ(contexts.loads()[2].load, 100);
}

}  // namespace
}  // namespace nmc::router
