// Hand-over between the two workers of a pd runtime: what is lost is computed again, and tight memory only makes it
// slower.
#include "engine/handover.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "engine/test_support.h"

namespace nmc::engine {
namespace {

using testing::Engine;
using testing::random_tokens;

class HandoverTest : public ::testing::TestWithParam<Transfer> {
 protected:
  void TearDown() override { disarm_failpoints(); }

  static Engine::Setup setup() {
    Engine::Setup setup;
    setup.options.mode = Mode::kPd;
    setup.options.transfer = GetParam();
    setup.options.reuse = Reuse::kNone;
    return setup;
  }
};

TEST_P(HandoverTest, WhatIsLostOnTheWayIsComputedAgain) {
  Engine engine(setup());
  const std::string carrier = transfer_name(GetParam());
  for (const std::string& place : {std::string("handover.send"), std::string("handover.receive"),
                                   "transport." + carrier + ".send", "transport." + carrier + ".receive"}) {
    const bool passed = GetParam() != Transfer::kDirect || place.starts_with("handover.");
    arm_failpoint(place, FailpointAction::kError);
    const std::vector<TokenId> tokens = random_tokens(70, 3, engine.vocab());
    EXPECT_EQ(engine.run(tokens, 8), engine.plain(tokens, 8)) << place;
    EXPECT_EQ(failpoint_fired(place), passed ? 1u : 0u) << place;
    EXPECT_EQ(engine.store().stats().blocks_reserved, 0u) << place;
  }
}

// Rounds enough for each order in which the two workers can take and give back the last blocks.
TEST_P(HandoverTest, TightMemoryDelaysButNeverStops) {
  for (const Reuse reuse : {Reuse::kNone, Reuse::kGlobal}) {
    Engine::Setup tight = setup();
    tight.blocks = 12;
    tight.tail_bytes = 0;
    tight.options.reuse = reuse;
    Engine engine(tight);
    std::vector<std::vector<TokenId>> prompts;
    std::vector<testing::Trace> plain;
    for (std::size_t i = 0; i < 6; ++i) {
      prompts.push_back(random_tokens(50 + 7 * i, i, engine.vocab()));
      plain.push_back(engine.plain(prompts[i], 40));
    }
    for (int round = 0; round < 20; ++round) {
      std::vector<std::shared_ptr<testing::Collector>> collectors;
      for (std::size_t i = 0; i < prompts.size(); ++i)
        collectors.push_back(engine.submit(engine.request(fmt::format("t{}.{}", round, i), prompts[i], 40)));
      for (std::size_t i = 0; i < prompts.size(); ++i)
        EXPECT_EQ(engine.trace(fmt::format("t{}.{}", round, i), *collectors[i]), plain[i]) << round << " " << i;
      EXPECT_EQ(engine.store().stats().blocks_reserved, 0u);
    }
  }
}

TEST_P(HandoverTest, CancelledOnTheWayLeavesNothingBehind) {
  Engine engine(setup());
  for (int round = 0; round < 20; ++round) {
    const std::string id = "c" + std::to_string(round);
    auto collector = engine.submit(engine.request(id, random_tokens(100, 5, engine.vocab()), 500));
    collector->wait_tokens(1);  // the first token leaves right before the hand-over
    engine.runtime().cancel(id);
    EXPECT_EQ(collector->wait().reason, FinishReason::kCancelled);
    EXPECT_EQ(engine.store().stats().blocks_reserved, 0u);
  }
}

TEST_P(HandoverTest, TheLastOnesAreTold) {
  Engine engine(setup());
  const std::size_t runs = kHandoverRecordsMax + 2;
  Outcome last;
  for (std::size_t i = 0; i < runs; ++i) engine.run(random_tokens(33, i, engine.vocab()), 2, &last);
  const std::vector<HandoverRecord> told = engine.runtime().status().handovers;
  ASSERT_EQ(told.size(), kHandoverRecordsMax);
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i].request_id, fmt::format("run-{}", runs - 1 - i));
  EXPECT_EQ(told[0].from, "prefill-0");
  EXPECT_EQ(told[0].to, "decode-0");
  EXPECT_EQ(told[0].transfer, transfer_name(GetParam()));
  EXPECT_GE(told[0].bytes, engine.layout().blocks_for(33) * engine.layout().block_bytes());
  EXPECT_EQ(told[0].bytes, last.metrics.snapshot_bytes);
  EXPECT_GT(told[0].ms, 0);
}

TEST_P(HandoverTest, OneThatNeverArrivedIsNotTold) {
  Engine engine(setup());
  arm_failpoint("handover.receive", FailpointAction::kError);
  engine.run(random_tokens(33, 1, engine.vocab()), 2);
  EXPECT_EQ(failpoint_fired("handover.receive"), 1u);
  EXPECT_TRUE(engine.runtime().status().handovers.empty());
}

INSTANTIATE_TEST_SUITE_P(Carriers, HandoverTest, ::testing::Values(Transfer::kDirect, Transfer::kShm, Transfer::kTcp),
                         [](const auto& param) { return std::string(transfer_name(param.param)); });

}  // namespace
}  // namespace nmc::engine
