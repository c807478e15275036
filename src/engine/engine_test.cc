// What a runtime promises about requests: reuse that is real, memory that comes back, cancellation, deadlines, bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/test_support.h"
#include "kv/prefix.h"

namespace nmc::engine {
namespace {

using testing::Collector;
using testing::Engine;
using ::testing::HasSubstr;
using testing::random_tokens;
using testing::Trace;

void expect_idle(Engine& engine) {
  const store::StoreStats pool = engine.store().stats();
  EXPECT_EQ(pool.blocks_reserved, 0u);
  EXPECT_EQ(pool.blocks_pinned, 0u);
  EXPECT_EQ(pool.limbo_bytes, 0u);
  const RuntimeStatus status = engine.runtime().status();
  EXPECT_EQ(status.queued, 0u);
  EXPECT_EQ(status.running, 0u);
  EXPECT_EQ(status.counters.leaked_handles, 0u);
}

// Names of the full blocks of a prompt, as the engine gives them.
std::vector<std::string> block_keys(Engine& engine, const std::vector<TokenId>& tokens, const std::string& salt = "") {
  kv::Namespace ns;
  ns.weights = "random/" + std::to_string(engine.setup().seed);
  ns.config = engine.setup().config.digest_text();
  ns.layout = engine.layout();
  ns.salt = salt;
  kv::PrefixChain chain(ns.digest(), engine.setup().options.block_tokens);
  chain.append(tokens);
  std::vector<std::string> keys;
  for (const kv::PrefixKey& key : chain.keys()) keys.push_back(kv::object_key(key));
  return keys;
}

TEST(EngineTest, UsesTheLongestRunOfBlocksThatIsReallyThere) {
  Engine engine({});
  const std::vector<TokenId> tokens = random_tokens(8 * 16 + 5, 1, engine.vocab());
  const Trace plain = engine.plain(tokens, 4);
  for (const std::size_t lost : {5, 0, 7}) {
    EXPECT_EQ(engine.run(tokens, 4), plain);
    ASSERT_TRUE(engine.store().remove(block_keys(engine, tokens)[lost])) << lost;
    Outcome outcome;
    EXPECT_EQ(engine.run(tokens, 4, &outcome), plain);
    EXPECT_EQ(outcome.metrics.saved_tokens, lost * 16);
    EXPECT_EQ(outcome.metrics.computed_tokens, tokens.size() - lost * 16);
    EXPECT_EQ(outcome.metrics.hit_blocks, lost);
  }
  for (const std::string& key : block_keys(engine, tokens)) engine.store().remove(key);
  Outcome outcome;
  EXPECT_EQ(engine.run(tokens, 4, &outcome), plain);
  EXPECT_EQ(outcome.metrics.saved_tokens, 0u);
  expect_idle(engine);
}

TEST(EngineTest, OutputStaysRightWhileTheCacheEvictsAllTheTime) {
  Engine::Setup small;
  small.blocks = 20;
  small.tail_bytes = 0;
  Engine engine(small);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Trace> plain;
  for (std::size_t i = 0; i < 8; ++i) {
    prompts.push_back(random_tokens(30 + 17 * i, i % 3, engine.vocab()));  // some share a beginning
    plain.push_back(engine.plain(prompts.back(), 8));
  }
  std::vector<std::thread> clients;
  for (std::size_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (std::size_t round = 0; round < 12; ++round) {
        const std::size_t which = (c * 5 + round * 3) % prompts.size();
        const std::string id = "c" + std::to_string(c) + "-" + std::to_string(round);
        auto collector = engine.submit(engine.request(id, prompts[which], 8));
        EXPECT_EQ(engine.trace(id, *collector), plain[which]) << id;
        EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(engine.store().stats().evicted_objects, 0u);
  expect_idle(engine);
}

TEST(EngineTest, PromptsLoseTheirEndsBeforeTheirBeginnings) {
  Engine::Setup small;
  small.blocks = 16;
  small.tail_bytes = 0;
  Engine engine(small);
  const std::vector<TokenId> old = random_tokens(10 * 16, 1, engine.vocab());
  engine.run(old, 1);
  engine.run(random_tokens(9 * 16, 2, engine.vocab()), 1);  // needs more than what is free
  Outcome outcome;
  EXPECT_EQ(engine.run(old, 1, &outcome), engine.plain(old, 1));
  EXPECT_GE(outcome.metrics.hit_blocks, 5u);
  EXPECT_LT(outcome.metrics.hit_blocks, 10u);
}

TEST(EngineTest, OtherWeightsUnderTheSameNameNeverHit) {
  auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder);
  Engine::Setup first;
  first.disk_dir = folder->path();
  Engine::Setup second = first;
  second.seed = 8;
  Engine::Setup third = first;
  third.config.rope_theta = 5000.0f;
  const std::vector<TokenId> tokens = random_tokens(64, 1, first.config.vocab);
  Outcome outcome;
  {
    Engine engine(first);
    engine.run(tokens, 4);
    ASSERT_TRUE(engine.store().flush());
  }
  for (const Engine::Setup& other : {second, third}) {
    Engine engine(other);
    EXPECT_EQ(engine.run(tokens, 4, &outcome), engine.plain(tokens, 4));
    EXPECT_EQ(outcome.metrics.saved_tokens, 0u);
    ASSERT_TRUE(engine.store().flush());
  }
  Engine again(first);
  EXPECT_EQ(again.run(tokens, 4, &outcome), again.plain(tokens, 4));
  EXPECT_EQ(outcome.metrics.saved_tokens, 64u);
  EXPECT_EQ(outcome.metrics.cache_source, CacheSource::kDisk);
}

TEST(EngineTest, RestartFromDiskIsWarm) {
  auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder);
  Engine::Setup setup;
  setup.disk_dir = folder->path();
  Engine engine(setup);
  const std::vector<TokenId> tokens = random_tokens(100, 1, engine.vocab());
  const Trace plain = engine.plain(tokens, 4);
  EXPECT_EQ(engine.run(tokens, 4), plain);
  engine.start();
  Outcome outcome;
  EXPECT_EQ(engine.run(tokens, 4, &outcome), plain);
  EXPECT_EQ(outcome.metrics.computed_tokens, 0u);
  EXPECT_EQ(outcome.metrics.cache_source, CacheSource::kDisk);
  EXPECT_EQ(outcome.metrics.hit_blocks, 6u);
}

TEST(EngineTest, SaltsKeepTenantsApart) {
  Engine engine({});
  const std::vector<TokenId> tokens = random_tokens(64, 1, engine.vocab());
  const auto saved = [&](const std::string& id, const std::string& salt) {
    GenerateRequest request = engine.request(id, tokens, 2);
    request.cache_salt = salt;
    return engine.submit(std::move(request))->wait().metrics.saved_tokens;
  };
  EXPECT_EQ(saved("1", "x"), 0u);
  EXPECT_EQ(saved("2", "y"), 0u);
  EXPECT_EQ(saved("3", ""), 0u);
  EXPECT_EQ(saved("4", "x"), 64u);
  EXPECT_EQ(saved("5", ""), 64u);
  EXPECT_EQ(saved("6", std::string("x\0", 2)), 0u);
}

TEST(EngineTest, NothingIsLookedUpOrKeptWithoutReuse) {
  Engine::Setup setup;
  setup.options.reuse = Reuse::kNone;
  Engine engine(setup);
  const std::vector<TokenId> tokens = random_tokens(64, 1, engine.vocab());
  engine.run(tokens, 4);
  Outcome outcome;
  engine.run(tokens, 4, &outcome);
  EXPECT_EQ(outcome.metrics.saved_tokens, 0u);
  EXPECT_EQ(engine.store().stats().objects, 0u);
  EXPECT_EQ(engine.store().stats().lookups, 0u);
}

// Each loads a prefix of 40 % of the pool and needs 60 % in all: one has to wait for the other, and neither for ever.
TEST(EngineTest, TwoLoadedPrefixesThatDoNotFitTogetherBothFinish) {
  Engine::Setup setup;
  setup.blocks = 20;
  setup.tail_bytes = 0;
  Engine engine(setup);
  std::vector<std::vector<TokenId>> prefixes, prompts;
  for (std::uint64_t i = 0; i < 2; ++i) {
    prefixes.push_back(random_tokens(8 * 16, i, engine.vocab()));
    engine.run(prefixes.back(), 1);
    prompts.push_back(prefixes.back());
    for (const TokenId token : random_tokens(3 * 16, 10 + i, engine.vocab())) prompts.back().push_back(token);
  }
  auto a = engine.submit(engine.request("a", prompts[0], 16));
  auto b = engine.submit(engine.request("b", prompts[1], 16));
  EXPECT_EQ(engine.trace("a", *a), engine.plain(prompts[0], 16));
  EXPECT_EQ(engine.trace("b", *b), engine.plain(prompts[1], 16));
  expect_idle(engine);
}

class CancelTest : public ::testing::TestWithParam<Mode> {
 protected:
  static Engine::Setup setup() {
    Engine::Setup setup;
    setup.options.mode = GetParam();
    return setup;
  }
};

TEST_P(CancelTest, CancelEndsARunningRequestAndReturnsItsBlocks) {
  Engine engine(setup());
  auto collector = engine.submit(engine.request("long", random_tokens(40, 1, engine.vocab()), 3000));
  collector->wait_tokens(5);
  engine.runtime().cancel("long");
  const Outcome& outcome = collector->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kCancelled);
  EXPECT_LT(outcome.metrics.output_tokens, 3000u);
  EXPECT_EQ(collector->finishes(), 1);
  expect_idle(engine);
  EXPECT_EQ(engine.runtime().status().counters.requests_cancelled, 1u);
}

TEST_P(CancelTest, CancelOfAQueuedRequestLeavesTheRunningOneAlone) {
  Engine::Setup one_slot = setup();
  one_slot.options.max_running = 1;
  Engine engine(one_slot);
  const std::vector<TokenId> tokens = random_tokens(20, 1, engine.vocab());
  auto active = engine.submit(engine.request("active", tokens, 200));
  active->wait_tokens(1);
  for (int i = 0; i < 20; ++i) {
    const std::string id = "queued-" + std::to_string(i);
    auto queued =
        engine.submit(engine.request(id, random_tokens(20, 50 + static_cast<std::uint64_t>(i), engine.vocab()), 5));
    engine.runtime().cancel(id);
    const FinishReason reason = queued->wait().reason;  // it may have been quicker than its cancellation
    EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
  }
  EXPECT_EQ(engine.trace("active", *active), engine.plain(tokens, 200));
  EXPECT_EQ(active->wait().reason, FinishReason::kLength);
  expect_idle(engine);
}

TEST_P(CancelTest, DeadlineFailsTheRequestWithItsReason) {
  ManualClock clock;
  Engine::Setup timed = setup();
  timed.options.clock = &clock;
  Engine engine(timed);
  GenerateRequest request = engine.request("late", random_tokens(20, 1, engine.vocab()), 5000);
  request.deadline = clock.now() + std::chrono::seconds(5);
  auto collector = engine.submit(std::move(request));
  collector->wait_tokens(3);
  clock.advance(std::chrono::seconds(6));
  const Outcome& outcome = collector->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kFailed);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kDeadlineExceeded);
  expect_idle(engine);
}

TEST_P(CancelTest, DrainLetsRequestsFinishAndRefusesNewOnes) {
  Engine engine(setup());
  auto running = engine.submit(engine.request("running", random_tokens(20, 1, engine.vocab()), 50));
  EXPECT_TRUE(engine.runtime().drain(std::chrono::seconds(60)));
  EXPECT_EQ(running->wait().reason, FinishReason::kLength);
  const Result<void> refused = engine.runtime().submit(engine.request("new", {1, 2}, 1), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

TEST_P(CancelTest, DrainThatRunsOutOfTimeCancelsTheRest) {
  Engine engine(setup());
  auto endless = engine.submit(engine.request("endless", random_tokens(20, 1, engine.vocab()), 4000));
  endless->wait_tokens(2);
  EXPECT_FALSE(engine.runtime().drain(std::chrono::milliseconds(1)));
  EXPECT_EQ(endless->wait().reason, FinishReason::kCancelled);
  expect_idle(engine);
}

INSTANTIATE_TEST_SUITE_P(Modes, CancelTest, ::testing::Values(Mode::kMonolithic, Mode::kPd),
                         [](const auto& param) { return std::string(mode_name(param.param)); });

TEST(EngineTest, AFullQueueRefusesOneMore) {
  Engine::Setup setup;
  setup.options.max_running = 1;
  setup.options.max_queue = 2;
  Engine engine(setup);
  auto active = engine.submit(engine.request("active", random_tokens(20, 1, engine.vocab()), 3000));
  active->wait_tokens(1);
  auto a = engine.submit(engine.request("a", {1, 2, 3}, 1));
  auto b = engine.submit(engine.request("b", {1, 2, 3}, 1));
  const Result<void> refused =
      engine.runtime().submit(engine.request("c", {1, 2, 3}, 1), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(engine.runtime().status().counters.requests_rejected, 1u);
  engine.runtime().cancel("active");
  EXPECT_EQ(a->wait().reason, FinishReason::kLength);
  EXPECT_EQ(b->wait().reason, FinishReason::kLength);
}

TEST(EngineTest, WhatCanNeverRunIsRefusedWithTheNumbers) {
  Engine::Setup setup;
  setup.blocks = 8;
  setup.tail_bytes = 0;
  Engine engine(setup);
  const auto refused = [&](std::vector<TokenId> prompt, std::size_t max_tokens) {
    const Result<void> done =
        engine.runtime().submit(engine.request("x", std::move(prompt), max_tokens), std::make_shared<Collector>());
    EXPECT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
    return done ? std::string() : done.error().message;
  };
  EXPECT_THAT(refused({}, 4), HasSubstr("empty"));
  EXPECT_THAT(refused({1, 2}, 0), HasSubstr("max_tokens"));
  EXPECT_THAT(refused({1, 100000}, 4), HasSubstr("100000"));
  EXPECT_THAT(refused(std::vector<TokenId>(9000, 1), 4), HasSubstr("9000"));
  EXPECT_THAT(refused(std::vector<TokenId>(100, 1), 200), HasSubstr("KV blocks"));
  EXPECT_EQ(engine.submit(engine.request("ok", std::vector<TokenId>(100, 1), 29))->wait().reason,
            FinishReason::kLength);
}

TEST(EngineTest, SeedDecidesAndNothingElse) {
  Engine engine({});
  const std::vector<TokenId> tokens = random_tokens(33, 1, engine.vocab());
  const auto generate = [&](const std::string& id, std::uint64_t seed) {
    GenerateRequest request = engine.request(id, tokens, 24);
    request.sampling = {.temperature = 1.0f, .top_p = 0.95f, .top_k = 50, .seed = seed};
    auto collector = engine.submit(std::move(request));
    collector->wait();
    return collector->tokens();
  };
  const auto first = generate("1", 42);
  EXPECT_EQ(generate("2", 42), first);
  EXPECT_NE(generate("3", 43), first);
}

TEST(EngineTest, EndOfSequenceStopsUnlessIgnored) {
  Engine::Setup setup;
  Engine probe(setup);
  const std::vector<TokenId> tokens = random_tokens(33, 1, probe.vocab());
  const std::vector<TokenId> free_run = probe.run(tokens, 12).tokens;
  setup.options.eos_ids = {free_run[4]};
  const std::size_t first =
      static_cast<std::size_t>(std::find(free_run.begin(), free_run.end(), free_run[4]) - free_run.begin());
  Engine engine(setup);
  Outcome outcome;
  EXPECT_EQ(engine.run(tokens, 12, &outcome).tokens.size(), first + 1);
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  GenerateRequest ignoring = engine.request("ignoring", tokens, 12);
  ignoring.ignore_eos = true;
  auto collector = engine.submit(std::move(ignoring));
  EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  EXPECT_EQ(collector->tokens(), free_run);
}

TEST(EngineTest, MinTokensHoldsEveryEndingOff) {
  Engine::Setup setup;
  Engine probe(setup);
  const std::vector<TokenId> tokens = random_tokens(33, 1, probe.vocab());
  const std::vector<TokenId> free_run = probe.run(tokens, 12).tokens;
  setup.options.eos_ids = {free_run[0]};
  Engine engine(setup);
  for (const std::size_t least : {0, 1, 5, 12}) {
    GenerateRequest request = engine.request("least", tokens, 12);
    request.min_tokens = least;
    request.stop_ids = {free_run[1]};
    auto collector = engine.submit(std::move(request));
    collector->wait();
    const std::vector<TokenId> got = collector->tokens();
    EXPECT_GE(got.size(), std::max<std::size_t>(least, 1));
    for (std::size_t i = 0; i + 1 < got.size() && i < least; ++i) {
      EXPECT_NE(got[i], free_run[0]);
      EXPECT_NE(got[i], free_run[1]);
    }
  }
}

TEST(EngineTest, StopIdsEndAnAnswerEvenWhenTheModelsOwnAreIgnored) {
  Engine engine({});
  const std::vector<TokenId> tokens = random_tokens(33, 1, engine.vocab());
  const std::vector<TokenId> free_run = engine.run(tokens, 12).tokens;
  GenerateRequest request = engine.request("stop", tokens, 12);
  request.ignore_eos = true;
  request.stop_ids = {free_run[3]};
  auto collector = engine.submit(std::move(request));
  EXPECT_EQ(collector->wait().reason, FinishReason::kStop);
  const auto first = std::find(free_run.begin(), free_run.end(), free_run[3]);
  EXPECT_EQ(collector->tokens(), std::vector<TokenId>(free_run.begin(), first + 1));
}

// What a forced answer's tokens are worth doesn't depend on how its KV came about.
TEST(EngineTest, ForcedTokensAreTakenAndTheirLogprobsTold) {
  Engine engine({});
  const std::vector<TokenId> tokens = random_tokens(40, 1, engine.vocab());
  const auto worth = [&](const std::string& id, std::size_t prompt) {
    GenerateRequest request =
        engine.request(id, {tokens.begin(), tokens.begin() + static_cast<int>(prompt)}, tokens.size() - prompt);
    request.forced.assign(tokens.begin() + static_cast<int>(prompt), tokens.end());
    request.ignore_eos = true;
    request.logprobs = 0;
    auto collector = engine.submit(std::move(request));
    collector->wait();
    std::vector<float> logprobs;
    for (const SampledToken& token : collector->sampled()) {
      EXPECT_EQ(token.id, tokens[tokens.size() - collector->sampled().size() + logprobs.size()]);
      EXPECT_EQ(token.logprobs.size(), 1u);
      logprobs.push_back(token.logprobs[0].logprob);
    }
    return logprobs;
  };
  const std::vector<float> all = worth("1", 1);
  ASSERT_EQ(all.size(), 39u);
  EXPECT_EQ(worth("2", 20), std::vector<float>(all.begin() + 19, all.end()));
}

}  // namespace
}  // namespace nmc::engine
