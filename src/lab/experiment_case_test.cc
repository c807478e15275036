#include "lab/experiment_case.h"

#include <gmock/gmock.h>

#include <set>

#include "model/model.h"

namespace nmc::lab {
namespace {

class ExperimentCaseTest : public ::testing::Test {
 protected:
  void start(engine::RuntimeOptions options, store::StoreOptions memory = {}) {
    auto model = model::load_model("tiny", Dtype::kBf16, pool_);
    ASSERT_TRUE(model.has_value());
    model_ = std::make_unique<model::Model>(std::move(*model));
    const kv::Namespace ns = model_->kv_namespace(options.block_tokens);
    memory.dram_bytes = 8 << 20;
    memory.block_bytes = ns.layout.block_bytes();
    auto store = store::Store::create(std::move(memory));
    ASSERT_TRUE(store.has_value()) << store.error().message;
    store_ = std::move(*store);
    auto runtime = engine::create_runtime(options, *model_->decoder, ns, *store_, pool_);
    ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
    runtime_ = std::move(*runtime);
  }

  evidence::CaseRow run(const WorkloadSpec& spec, const std::string& lifecycle = "cold",
                        const FaultSpec* fault = nullptr) {
    const auto vocab = static_cast<std::uint32_t>(model_->config.vocab);
    const CaseOptions options{
        .key = {spec.name, "monolithic", "none", "1", lifecycle, "none"}, .seed = 7, .vocab = vocab, .fault = fault};
    auto row = run_case(*runtime_, *store_, make_workload(spec, 7, vocab, {}), options);
    EXPECT_TRUE(row.has_value()) << row.error().message;
    return row ? *row : evidence::CaseRow();
  }

  static std::vector<double> metric(const evidence::CaseRow& row, const char* name) {
    std::vector<double> values;
    for (const auto& request : row.requests) values.push_back(request.metric(name).value_or(-1));
    return values;
  }
  static std::vector<std::string> outcomes(const evidence::CaseRow& row) {
    std::vector<std::string> found;
    for (const auto& request : row.requests) found.push_back(request.outcome);
    return found;
  }

  const WorkloadSpec shared_{
      .name = "shared", .requests = 4, .groups = 1, .prefix_tokens = 64, .suffix_tokens = 8, .output_tokens = 4};
  ThreadPool pool_{1};
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Runtime> runtime_;
};

using ::testing::Each;
using ::testing::ElementsAre;

TEST_F(ExperimentCaseTest, AColdCacheIsFilledByTheFirstRequest) {
  start({});
  const evidence::CaseRow row = run(shared_);
  EXPECT_THAT(metric(row, "saved_tokens"), ElementsAre(0, 64, 64, 64));
  EXPECT_THAT(outcomes(row), Each("finished"));
  for (const auto& request : row.requests) EXPECT_EQ(request.endings, 1u);
  EXPECT_EQ(row.resources.at("leaked_handles"), 0u);
  EXPECT_EQ(row.resources.at("residual_slots"), 0u);
}

TEST_F(ExperimentCaseTest, AWarmOneHasWhatTheSameRequestsLeft) {
  start({});
  EXPECT_THAT(metric(run(shared_, "warm"), "computed_tokens"), Each(0));
}

TEST_F(ExperimentCaseTest, WhatMemoryGaveUpComesFromDisk) {
  const TemporaryFolder folder = *TemporaryFolder::create();
  start({}, {.disk_dir = folder.path(), .disk_bytes = std::uint64_t{64} << 20});
  const evidence::CaseRow row = run(shared_, "dram-evict");
  EXPECT_EQ(row.requests[0].cache_source, "disk");
  EXPECT_THAT(metric(row, "saved_tokens"), Each(72)) << "tail objects of equal prompts are on disk, too";
}

TEST_F(ExperimentCaseTest, WithoutReuseNothingIsSavedAndAnswersAreTheSame) {
  start({});
  const evidence::CaseRow with = run(shared_);
  start({.reuse = engine::Reuse::kNone});
  const evidence::CaseRow without = run(shared_, "warm");
  EXPECT_THAT(metric(without, "saved_tokens"), Each(0));
  for (std::size_t i = 0; i < with.requests.size(); ++i)
    EXPECT_EQ(with.requests[i].tokens_digest, without.requests[i].tokens_digest);
}

TEST_F(ExperimentCaseTest, ExactlyWhatTheQueueHoldsIsTakenBehindABusyWorker) {
  start({.max_queue = 3, .max_running = 1});
  const WorkloadSpec burst{
      .name = "burst", .requests = 8, .suffix_tokens = 16, .output_tokens = 2, .concurrency = 8, .max_queue = 3};
  const std::vector<std::string> found = outcomes(run(burst));
  EXPECT_THAT(std::vector(found.begin(), found.begin() + 3), Each("finished"));
  EXPECT_THAT(std::vector(found.begin() + 3, found.end()), Each("rejected"));
}

TEST_F(ExperimentCaseTest, ACancelledRequestIsToldSoAndTheOthersAreRight) {
  start({});
  const evidence::CaseRow whole = run(shared_), cancelled = run(shared_, "cold", find_fault("cancellation"));
  EXPECT_THAT(outcomes(cancelled), ElementsAre("cancelled", "finished", "finished", "finished"));
  for (std::size_t i = 1; i < whole.requests.size(); ++i)
    EXPECT_EQ(whole.requests[i].tokens_digest, cancelled.requests[i].tokens_digest);
  EXPECT_TRUE(cancelled.requests[0].metrics.empty()) << "how far it got is chance";
}

}  // namespace
}  // namespace nmc::lab
