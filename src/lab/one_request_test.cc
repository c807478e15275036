#include "lab/one_request.h"

#include <gtest/gtest.h>

#include "model/model.h"
#include "store/store.h"

namespace nmc::lab {
namespace {

class OneRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = model::load_model("tiny", Dtype::kBf16, pool_);
    ASSERT_TRUE(model.has_value());
    model_ = std::make_unique<model::Model>(std::move(*model));
    const engine::RuntimeOptions options;
    const kv::Namespace ns = model_->kv_namespace(options.block_tokens);
    auto store = store::Store::create({.dram_bytes = 8 << 20, .block_bytes = ns.layout.block_bytes()});
    ASSERT_TRUE(store.has_value()) << store.error().message;
    store_ = std::move(*store);
    auto runtime = engine::create_runtime(options, *model_->decoder, ns, *store_, pool_);
    ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
    runtime_ = std::move(*runtime);
  }

  engine::GenerateRequest request(std::vector<engine::TokenId> prompt) {
    engine::GenerateRequest made;
    made.id = "r";
    made.prompt = std::move(prompt);
    made.max_tokens = 5;
    made.ignore_eos = true;
    return made;
  }

  ThreadPool pool_{1};
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Runtime> runtime_;
};

TEST_F(OneRequestTest, ReturnsTokensAndMetricsWhenTheRequestIsOver) {
  const auto done = run_request(*runtime_, request({1, 2, 3}));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->tokens.size(), 5u);
  EXPECT_EQ(done->reason, engine::FinishReason::kLength);
  EXPECT_EQ(done->metrics.prompt_tokens, 3u);
}

TEST_F(OneRequestTest, RefusedAndExpiredRequestsAreErrors) {
  EXPECT_EQ(run_request(*runtime_, request({})).error().code, ErrorCode::kInvalidArgument);
  engine::GenerateRequest late = request({1, 2, 3});
  late.deadline = Nanos{1};
  EXPECT_EQ(run_request(*runtime_, std::move(late)).error().code, ErrorCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace nmc::lab
