#include "lab/bench_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

class BenchEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = model::load_model("tiny", Dtype::kBf16, pool_);
    ASSERT_TRUE(model.has_value());
    model_ = std::make_unique<model::Model>(std::move(*model));
  }

  ThreadPool pool_{1};
  std::unique_ptr<model::Model> model_;
};

TEST(SpreadTest, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(spread_of({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(spread_of({4, 1, 3, 2}).min, 1);
  EXPECT_EQ(spread_of({4, 1, 3, 2}).max, 4);
}

TEST_F(BenchEngineTest, OperationsOfAPrefillAddUpOverItsChunks) {
  const model::ModelConfig& config = model_->config;
  const double whole = forward_flops(config, 100, 0, 1);
  EXPECT_DOUBLE_EQ(whole, forward_flops(config, 64, 0, 0) + forward_flops(config, 36, 64, 1));
  double by_token = 0;
  for (std::size_t position = 0; position < 100; ++position)
    by_token += forward_flops(config, 1, position, position == 99);
  EXPECT_NEAR(whole, by_token, whole * 1e-12);
}

// A first token attends to itself only, so its operations are two a weight and little else.
TEST_F(BenchEngineTest, OperationsOfOneTokenAreTwoAWeight) {
  const model::ModelConfig& config = model_->config;
  const double weights = static_cast<double>(step_weight_bytes(config, Dtype::kBf16)) / 2;
  const double attention = static_cast<double>(4 * config.layers * config.q_size());
  EXPECT_DOUBLE_EQ(forward_flops(config, 1, 0, 1), 2 * weights + attention);
}

TEST_F(BenchEngineTest, StepReadsAllPackedWeightsButTheEmbeddingTable) {
  const model::ModelConfig& config = model_->config;
  const std::size_t embedding = config.vocab * config.hidden * 2;
  const std::size_t step = step_weight_bytes(config, Dtype::kBf16);
  EXPECT_LE(step + embedding, model_->decoder->weight_bytes());
  EXPECT_GE(step + embedding, model_->decoder->weight_bytes() * 95 / 100);  // the rest: norms and padding
}

TEST_F(BenchEngineTest, MeasuresEveryRowAndComputesNothingOnAnExactHit) {
  BenchOptions options;
  options.batches = {1, 3};
  options.prompt_tokens = {20, 70};
  options.context_tokens = 30;
  options.decode_steps = 3;
  options.chunk_tokens = 32;
  options.ttft_prompt_tokens = 200;
  options.repeats = 2;
  std::size_t steps = 0;
  options.on_progress = [&](std::string_view) { ++steps; };
  const auto result = bench_engine(*model_, options, pool_);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(steps, 6u);
  EXPECT_GT(result->memory_gb_s, 0);
  EXPECT_GT(result->matmul_gflops, 0);
  ASSERT_EQ(result->decode.size(), 2u);
  ASSERT_EQ(result->prefill.size(), 2u);
  EXPECT_EQ(result->decode[1].batch, 3u);
  EXPECT_EQ(result->prefill[1].tokens, 70u);
  for (const auto& rows : {result->decode, result->prefill}) {
    for (const ThroughputRow& row : rows) {
      EXPECT_GT(row.tokens_per_s.min, 0);
      EXPECT_LE(row.tokens_per_s.min, row.tokens_per_s.median);
      EXPECT_LE(row.tokens_per_s.median, row.tokens_per_s.max);
      EXPECT_GT(row.memory_fraction, 0);
      EXPECT_GT(row.matmul_fraction, 0);
      EXPECT_FALSE(row.kernel.empty());
    }
  }
  ASSERT_EQ(result->ttft.size(), 3u);
  EXPECT_EQ(result->ttft[0].computed_tokens, 200u);
  EXPECT_EQ(result->ttft[1].computed_tokens, 200u - 180 / 16 * 16);
  EXPECT_EQ(result->ttft[2].computed_tokens, 0u);
  EXPECT_EQ(result->ttft[2].cache_source, engine::CacheSource::kDram);
}

TEST_F(BenchEngineTest, SizesBeyondTheContextAreRefused) {
  BenchOptions options;
  options.prompt_tokens = {model_->config.max_positions + 1};
  const auto result = bench_engine(*model_, options, pool_);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr("8192"));
}

}  // namespace
}  // namespace nmc::lab
