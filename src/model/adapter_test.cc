#include "model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/test_files.h"

namespace nmc::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kLoraConfig = R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none",
  "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"})";

std::string name_of(std::string_view projection, std::string_view side, std::size_t layer = 0) {
  return fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, projection, side);
}

class AdapterTest : public ::testing::Test {
 protected:
  // kSmallConfig: hidden 8, q 8, kv 4, intermediate 12, two layers.
  const ModelConfig config_ = *parse_config(*parse_json(kSmallConfig, "config"), "config.json");
  ThreadPool pool_{2};
  TemporaryFolder folder_ = *TemporaryFolder::create();
  std::vector<ExpectedTensor> tensors_ = {{name_of("self_attn.q_proj", "A"), {3, 8}},
                                          {name_of("self_attn.q_proj", "B"), {8, 3}},
                                          {name_of("mlp.down_proj", "A", 1), {3, 12}},
                                          {name_of("mlp.down_proj", "B", 1), {8, 3}}};

  Result<std::shared_ptr<const Adapter>> load(std::string_view config = kLoraConfig) {
    write_test_file(folder_.path() / "adapter_config.json", config);
    write_test_file(folder_.path() / "adapter_model.safetensors", safetensors_of(tensors_));
    return Adapter::load(folder_.path(), config_, pool_);
  }
  std::string load_error(std::string_view config = kLoraConfig) {
    const auto adapter = load(config);
    EXPECT_FALSE(adapter);
    return adapter ? "" : adapter.error().message;
  }
};

TEST_F(AdapterTest, EachPairGoesToTheProductOfItsProjection) {
  const auto adapter = load();
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ((*adapter)->rank(), 3u);
  const auto& queries = (*adapter)->parts(0, Product::kQkv);
  ASSERT_THAT(queries, SizeIs(1));
  EXPECT_EQ(queries[0].column, 0u);
  EXPECT_EQ(queries[0].down.n, 3u);
  EXPECT_EQ(queries[0].down.k, 8u);
  EXPECT_EQ(queries[0].up.n, 8u);
  EXPECT_THAT((*adapter)->parts(1, Product::kDown), SizeIs(1));
  EXPECT_THAT((*adapter)->parts(1, Product::kQkv), IsEmpty());
  EXPECT_THAT((*adapter)->parts(0, Product::kGateUp), IsEmpty());
}

TEST_F(AdapterTest, ProjectionsThatShareAProductAreKeptApart) {
  tensors_ = {{name_of("self_attn.v_proj", "A"), {3, 8}},
              {name_of("self_attn.v_proj", "B"), {4, 3}},
              {name_of("mlp.up_proj", "A"), {3, 8}},
              {name_of("mlp.up_proj", "B"), {12, 3}}};
  const auto adapter = load();
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ((*adapter)->parts(0, Product::kQkv)[0].column, 12u);  // behind 8 of q and 4 of k
  EXPECT_EQ((*adapter)->parts(0, Product::kGateUp)[0].column, 12u);
}

TEST_F(AdapterTest, DigestTellsTensorsAndScaleApart) {
  const std::string digest = (*load())->digest();
  EXPECT_EQ((*load())->digest(), digest);
  EXPECT_NE((*load(R"({"peft_type": "LORA", "r": 3, "lora_alpha": 5})"))->digest(), digest);
  tensors_.pop_back();
  tensors_.pop_back();
  EXPECT_NE((*load())->digest(), digest);
}

TEST_F(AdapterTest, TensorsThatDontFitAreRefusedByName) {
  const auto original = tensors_;
  tensors_[0].shape = {3, 9};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("adapter_model.safetensors"), HasSubstr("q_proj.lora_A"),
                                  HasSubstr("expected shape [3, 8]"), HasSubstr("[3, 9]")));
  tensors_[0].shape = {4, 8};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("q_proj.lora_A"), HasSubstr("rank 3"), HasSubstr("[4, 8]")));
  tensors_ = original;
  tensors_[3].shape = {3, 8};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("down_proj.lora_B"), HasSubstr("expected shape [8, 3]")));
  tensors_ = original;
  tensors_.erase(tensors_.begin() + 1);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("q_proj.lora_A"), HasSubstr("lora_B"), HasSubstr("missing")));
  tensors_ = {{name_of("self_attn.q_proj", "A", 2), {3, 8}}};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("layers.2"), HasSubstr("layers 0 to 1")));
  for (const char* name :
       {"base_model.model.lm_head.lora_A.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_embedding_A",
        "base_model.model.model.layers.x.self_attn.q_proj.lora_A.weight", "lora_A.weight",
        "base_model.model.model.layers.0.block_sparse_moe.gate.lora_A.weight",
        "base_model.model.model.layers.99999999999999999999.self_attn.q_proj.lora_A.weight"}) {
    tensors_ = {{name, {3, 8}}};
    EXPECT_THAT(load_error(), AllOf(HasSubstr(name), HasSubstr("expected base_model"))) << name;
  }
  tensors_.clear();
  EXPECT_THAT(load_error(), HasSubstr("found none"));
}

TEST_F(AdapterTest, VariantsThatWeDontDoAreRefusedByField) {
  struct Bad {
    const char* config;
    const char* expected;
  };
  for (const Bad& bad :
       {Bad{R"({"peft_type": "IA3"})", "peft_type"}, Bad{R"({"r": 3})", "peft_type"},
        Bad{R"({"peft_type": "LORA", "lora_alpha": 1})", "`r`"},
        Bad{R"({"peft_type": "LORA", "r": 0, "lora_alpha": 1})", "`r`"},
        Bad{R"({"peft_type": "LORA", "r": 3})", "lora_alpha"},
        Bad{R"({"peft_type": "LORA", "r": 3, "lora_alpha": 1, "bias": "all"})", "bias"},
        Bad{R"({"peft_type": "LORA", "r": 3, "lora_alpha": 1, "use_dora": true})", "use_dora"},
        Bad{R"({"peft_type": "LORA", "r": 3, "lora_alpha": 1, "modules_to_save": ["lm_head"]})", "modules_to_save"},
        Bad{R"({"peft_type": "LORA", "r": 3, "lora_alpha": 1, "rank_pattern": {"q_proj": 4}})", "rank_pattern"},
        Bad{"[]", "peft_type"}, Bad{"{", "not valid JSON"}}) {
    EXPECT_THAT(load_error(bad.config), AllOf(HasSubstr("adapter_config.json"), HasSubstr(bad.expected))) << bad.config;
  }
}

TEST_F(AdapterTest, AFolderWithoutAnAdapterIsRefused) {
  const auto adapter = Adapter::load(folder_.path(), config_, pool_);
  ASSERT_FALSE(adapter);
  EXPECT_THAT(adapter.error().message, HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace nmc::model
