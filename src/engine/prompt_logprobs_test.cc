// What a model makes of a prompt's own tokens, in every mode and whatever the cache has.
#include <gtest/gtest.h>

#include "engine/test_support.h"

namespace nmc::engine {
namespace {

using testing::Collector;
using testing::Engine;
using testing::odd_config;
using testing::random_tokens;

struct Way {
  Mode mode;
  Transfer transfer;
};

class PromptLogprobs : public ::testing::TestWithParam<Way> {
 protected:
  Engine::Setup setup() const {
    Engine::Setup setup;
    setup.options.mode = GetParam().mode;
    setup.options.transfer = GetParam().transfer;
    setup.options.max_batch_tokens = 48;
    return setup;
  }
  static GenerateRequest asking(Engine& engine, const std::string& id, const std::vector<TokenId>& prompt) {
    GenerateRequest request = engine.request(id, prompt, 8);
    request.prompt_logprobs = 3;
    return request;
  }
  // The same by another way: all but the first token said, one by one, as an answer.
  static std::vector<SampledToken> said(Engine& engine, const std::vector<TokenId>& prompt) {
    GenerateRequest request = engine.request("said", {prompt.front()}, prompt.size() - 1);
    request.forced.assign(prompt.begin() + 1, prompt.end());
    request.ignore_eos = true;
    request.logprobs = 3;
    auto collector = engine.submit(std::move(request));
    collector->wait();
    return collector->sampled();
  }
  static void expect_equal(const std::vector<PromptToken>& told, const std::vector<SampledToken>& said) {
    ASSERT_EQ(told.size(), said.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(told[i].position, i + 1);
      ASSERT_EQ(told[i].logprobs.size(), 4u);
      for (std::size_t j = 0; j < 4; ++j) {
        EXPECT_EQ(told[i].logprobs[j].id, said[i].logprobs[j].id);
        EXPECT_EQ(told[i].logprobs[j].logprob, said[i].logprobs[j].logprob);  // to the bit
      }
      // By rank: as many are likelier as stand before it among the likeliest, and more than those if it isn't there.
      const auto own = std::find_if(told[i].logprobs.begin() + 1, told[i].logprobs.end(),
                                    [&](const Logprob& one) { return one.id == told[i].logprobs[0].id; });
      const auto rank = static_cast<std::uint32_t>(own - told[i].logprobs.begin());
      if (own != told[i].logprobs.end())
        EXPECT_EQ(told[i].rank, rank);
      else
        EXPECT_GT(told[i].rank, 3u);
    }
  }
};

TEST_P(PromptLogprobs, EqualThoseOfTheSameTokensSaid) {
  Engine engine(setup());
  for (const std::size_t length : {1, 2, 16, 33, 130}) {
    SCOPED_TRACE(length);
    const std::vector<TokenId> prompt = random_tokens(length, length, engine.vocab());
    auto collector = engine.submit(asking(engine, "asks", prompt));
    EXPECT_EQ(engine.trace("asks", *collector), engine.plain(prompt, 8));
    const std::vector<PromptToken> told = collector->wait_prompt(0);
    if (length == 1)
      EXPECT_TRUE(told.empty());
    else
      expect_equal(told, said(engine, prompt));
  }
}

TEST_P(PromptLogprobs, AreComputedWhateverTheCacheHasAndFillIt) {
  Engine engine(setup());
  const std::vector<TokenId> prompt = random_tokens(70, 3, engine.vocab());
  engine.run(prompt, 8);
  auto collector = engine.submit(asking(engine, "asks", prompt));
  EXPECT_EQ(collector->wait().metrics.computed_tokens, 70u);
  EXPECT_EQ(collector->wait_prompt(69).size(), 69u);
  const std::vector<TokenId> fresh = random_tokens(70, 4, engine.vocab());
  engine.submit(asking(engine, "fills", fresh))->wait();
  Outcome outcome;
  engine.run(fresh, 8, &outcome);
  EXPECT_EQ(outcome.metrics.saved_tokens, 70u);
}

// A pool for about one and a half of them: they preempt each other, and nothing is told twice.
TEST_P(PromptLogprobs, AreToldOnceThroughPreemptions) {
  Engine::Setup tight = setup();
  tight.blocks = 11;
  tight.tail_bytes = 0;
  tight.options.reuse = Reuse::kNone;
  Engine engine(tight);
  std::vector<std::shared_ptr<Collector>> collectors;
  for (std::size_t i = 0; i < 4; ++i) {
    GenerateRequest request = asking(engine, "p" + std::to_string(i), random_tokens(90 + i, i, engine.vocab()));
    request.max_tokens = 60;
    collectors.push_back(engine.submit(std::move(request)));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(collectors[i]->wait().reason, FinishReason::kLength);
    const std::vector<PromptToken> told = collectors[i]->wait_prompt(0);
    ASSERT_EQ(told.size(), 89 + i);
    for (std::size_t j = 0; j < told.size(); ++j) EXPECT_EQ(told[j].position, j + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PromptLogprobs,
                         ::testing::Values(Way{Mode::kMonolithic, Transfer::kDirect}, Way{Mode::kPd, Transfer::kDirect},
                                           Way{Mode::kPd, Transfer::kShm}),
                         [](const auto& tested) {
                           return tested.param.mode == Mode::kMonolithic
                                      ? std::string("Monolithic")
                                      : std::string("Pd_") + transfer_name(tested.param.transfer);
                         });

}  // namespace
}  // namespace nmc::engine
