#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/test_files.h"

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json small() { return *parse_json(kSmallConfig, "config"); }

Json small_with(std::string_view patch) {
  Json json = small();
  json.merge_patch(*parse_json(patch, "patch"));  // null removes
  return json;
}

Result<ModelConfig> parse(const Json& json) { return parse_config(json, "dir/config.json"); }

TEST(ConfigTest, ReadsALlama) {
  const auto config = parse(small());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layers, 2u);
  EXPECT_EQ(config->heads, 4u);
  EXPECT_EQ(config->kv_heads, 2u);
  EXPECT_EQ(config->head_dim, 2u);  // hidden / heads
  EXPECT_EQ(config->kv_size(), 4u);
  EXPECT_EQ(config->max_positions, 64u);
  EXPECT_FLOAT_EQ(config->rms_epsilon, 1e-5f);
  EXPECT_EQ(config->bos_id, 1u);
  EXPECT_THAT(config->eos_ids, ElementsAre(2));
  EXPECT_EQ(config->dtype, "bfloat16");
  EXPECT_FALSE(config->tie_embeddings);
}

TEST(ConfigTest, AbsentFieldsHaveTheDefaultsOfTransformers) {
  const auto config = parse(small_with(R"({"num_key_value_heads": null, "rms_norm_eps": null, "rope_theta": null,
    "max_position_embeddings": null, "hidden_act": null, "bos_token_id": null, "eos_token_id": null,
    "torch_dtype": null, "architectures": null})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_FLOAT_EQ(config->rms_epsilon, 1e-6f);
  EXPECT_FLOAT_EQ(config->rope_theta, 10000.0f);
  EXPECT_EQ(config->max_positions, 2048u);
  EXPECT_EQ(config->bos_id, std::nullopt);
  EXPECT_THAT(config->eos_ids, IsEmpty());
}

TEST(ConfigTest, ReadsVariantsOfTheSameThing) {
  const auto config = parse(small_with(R"({"head_dim": 6, "eos_token_id": [2, 7], "dtype": "float16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_scaling": {"type": "default"}})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 6u);
  EXPECT_EQ(config->q_size(), 24u);
  EXPECT_THAT(config->eos_ids, ElementsAre(2, 7));
  EXPECT_FLOAT_EQ(config->rope_theta, 500000.0f);
  EXPECT_EQ(config->dtype, "float16");
}

ModelConfig family(std::string_view model_type, std::string_view patch = "{}") {
  Json json = small_with(R"({"architectures": null, "head_dim": 2})");
  json["model_type"] = model_type;
  json.merge_patch(*parse_json(patch, "patch"));
  const auto config = parse(json);
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

TEST(ConfigTest, BiasesAndNormsAreThoseOfTheFamily) {
  EXPECT_FALSE(family("llama").qkv_bias);
  const ModelConfig llama = family("llama", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(llama.qkv_bias && llama.out_bias && llama.mlp_bias);
  EXPECT_FALSE(family("mistral").qkv_bias);
  EXPECT_TRUE(family("qwen2").qkv_bias);
  EXPECT_FALSE(family("qwen2").out_bias);
  EXPECT_FALSE(family("qwen2").qk_norm);
  EXPECT_TRUE(family("qwen3").qk_norm);
  EXPECT_FALSE(family("qwen3").qkv_bias);
  EXPECT_TRUE(family("qwen3", R"({"attention_bias": true})").out_bias);
}

TEST(ConfigTest, WindowsAreThoseOfTheFamily) {
  EXPECT_THAT(family("llama").windows, IsEmpty());
  EXPECT_THAT(family("mistral").windows, ElementsAre(4096, 4096)) << "what transformers takes an absent one for";
  EXPECT_THAT(family("mistral", R"({"sliding_window": 8})").windows, ElementsAre(8, 8));
  Json json = small_with(R"({"architectures": null, "model_type": "mistral"})");
  json["sliding_window"] = nullptr;
  EXPECT_THAT(parse(json)->windows, IsEmpty()) << "null says that there is none";
  EXPECT_THAT(family("qwen2", R"({"sliding_window": 8})").windows, IsEmpty()) << "not switched on";
  EXPECT_THAT(family("qwen2", R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1})").windows,
              ElementsAre(0, 8));
  EXPECT_THAT(family("qwen2", R"({"sliding_window": 8, "use_sliding_window": true})").windows, IsEmpty())
      << "windows begin at layer 28";
  EXPECT_THAT(family("qwen3", R"({"sliding_window": 8, "use_sliding_window": true,
                                  "layer_types": ["sliding_attention", "full_attention"]})")
                  .windows,
              ElementsAre(8, 0));
}

TEST(ConfigTest, ReadsRopeScalingOldAndNew) {
  const ModelConfig old = family("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8,
    "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 128}})");
  EXPECT_EQ(old.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_FLOAT_EQ(old.rope_scaling.original_max_positions, 128.0f);
  const ModelConfig newer = family("llama", R"({"rope_parameters": {"rope_type": "llama3", "factor": 8,
    "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 128}})");
  EXPECT_EQ(newer.rope_scaling, old.rope_scaling);
  EXPECT_EQ(family("qwen3", R"({"head_dim": null})").head_dim, 128u);
}

TEST(ConfigTest, CountsParameters) {
  for (const ModelConfig& config :
       {family("llama"), family("llama", R"({"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})"),
        family("qwen2"), family("qwen3")}) {
    std::size_t elements = 0;
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      std::size_t size = 1;
      for (const std::uint64_t n : tensor.shape) size *= n;
      elements += size;
    }
    EXPECT_EQ(config.parameters(), elements) << config.digest_text();
  }
}

TEST(ConfigTest, DigestTextTellsShapesApartAndIgnoresTheRest) {
  const std::string text = parse(small())->digest_text();
  EXPECT_EQ(parse(small_with(R"({"max_position_embeddings": 128, "torch_dtype": "float32"})"))->digest_text(), text);
  for (const char* patch :
       {R"({"num_hidden_layers": 3})", R"({"rope_theta": 10000.5})", R"({"rms_norm_eps": 1.001e-5})",
        R"({"num_key_value_heads": 1})", R"({"head_dim": 4})", R"({"tie_word_embeddings": true})",
        R"({"attention_bias": true})", R"({"mlp_bias": true})", R"({"rope_scaling": {"type": "linear", "factor": 2}})",
        R"({"model_type": "mistral", "architectures": null})", R"({"model_type": "qwen2", "architectures": null})"}) {
    EXPECT_NE(parse(small_with(patch))->digest_text(), text) << patch;
  }
  EXPECT_NE(family("mistral", R"({"sliding_window": 8})").digest_text(),
            family("mistral", R"({"sliding_window": 9})").digest_text());
}

struct BadConfig {
  const char* patch;
  ErrorCode code;
  std::array<const char*, 3> expected;
};

constexpr BadConfig kBadConfigs[] = {
    {R"({"model_type": "mamba"})", ErrorCode::kUnsupported, {"model_type", "mamba", "llama"}},
    {R"({"model_type": null})", ErrorCode::kInvalidArgument, {"model_type", "missing"}},
    {R"({"model_type": 7})", ErrorCode::kInvalidArgument, {"model_type", "string", "7"}},
    {R"({"architectures": ["LlamaForSequenceClassification"]})",
     ErrorCode::kUnsupported,
     {"architectures", "LlamaForCausalLM", "Sequence"}},
    {R"({"architectures": []})", ErrorCode::kUnsupported, {"architectures"}},
    {R"({"hidden_act": "gelu"})", ErrorCode::kUnsupported, {"hidden_act", "silu", "gelu"}},
    {R"({"model_type": "mistral", "architectures": null, "attention_bias": true})",
     ErrorCode::kUnsupported,
     {"attention_bias", "false", "MistralForCausalLM"}},
    {R"({"attention_bias": "no"})", ErrorCode::kInvalidArgument, {"attention_bias", "true or false"}},
    {R"({"model_type": "qwen3", "architectures": null, "head_dim": 2, "mlp_bias": true})",
     ErrorCode::kUnsupported,
     {"mlp_bias", "Qwen3ForCausalLM"}},
    {R"({"model_type": "qwen2"})", ErrorCode::kUnsupported, {"architectures", "Qwen2ForCausalLM", "Llama"}},
    {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
     ErrorCode::kInvalidArgument,
     {"rope_scaling.low_freq_factor", "absent"}},
    {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
         "original_max_position_embeddings": 128}})",
     ErrorCode::kInvalidArgument,
     {"rope_scaling.high_freq_factor", "more than", "4"}},
    {R"({"rope_scaling": {"type": "linear"}})", ErrorCode::kInvalidArgument, {"rope_scaling.factor", "absent"}},
    {R"({"rope_scaling": {"type": "linear", "factor": 0}})", ErrorCode::kInvalidArgument, {"rope_scaling.factor", "0"}},
    {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
     ErrorCode::kUnsupported,
     {"rope_scaling.type", "linear", "dynamic"}},
    {R"({"rope_scaling": 2})", ErrorCode::kInvalidArgument, {"rope_scaling", "2"}},
    {R"({"rope_parameters": {"rope_type": "yarn"}})", ErrorCode::kUnsupported, {"rope_parameters.rope_type", "yarn"}},
    {R"({"sliding_window": 4096})", ErrorCode::kUnsupported, {"sliding_window", "LlamaForCausalLM", "4096"}},
    {R"({"model_type": "mistral", "architectures": null, "sliding_window": 0})",
     ErrorCode::kInvalidArgument,
     {"sliding_window", "0"}},
    {R"({"model_type": "mistral", "architectures": null, "layer_types": ["sliding_attention"]})",
     ErrorCode::kInvalidArgument,
     {"layer_types", "2"}},
    {R"({"model_type": "mistral", "architectures": null, "layer_types": ["sliding_attention", "linear_attention"]})",
     ErrorCode::kUnsupported,
     {"layer_types[1]", "full_attention", "linear_attention"}},
    {R"({"model_type": "qwen2", "architectures": null, "use_sliding_window": 1})",
     ErrorCode::kInvalidArgument,
     {"use_sliding_window"}},
    {R"({"quantization_config": {"bits": 4}})", ErrorCode::kUnsupported, {"quantization_config"}},
    {R"({"partial_rotary_factor": 0.5})", ErrorCode::kUnsupported, {"partial_rotary_factor", "0.5"}},
    {R"({"num_key_value_heads": 3})", ErrorCode::kInvalidArgument, {"num_key_value_heads", "divisor", "3"}},
    {R"({"num_key_value_heads": 8})", ErrorCode::kInvalidArgument, {"num_key_value_heads", "divisor", "8"}},
    {R"({"num_attention_heads": 3, "num_key_value_heads": 3})",
     ErrorCode::kInvalidArgument,
     {"num_attention_heads", "hidden_size", "3"}},
    {R"({"head_dim": 3})", ErrorCode::kInvalidArgument, {"head_dim", "even", "3"}},
    {R"({"head_dim": 4096})", ErrorCode::kInvalidArgument, {"head_dim", "4096"}},
    {R"({"num_hidden_layers": 0})", ErrorCode::kInvalidArgument, {"num_hidden_layers", "0"}},
    {R"({"num_hidden_layers": -2})", ErrorCode::kInvalidArgument, {"num_hidden_layers", "-2"}},
    {R"({"num_hidden_layers": 1.5})", ErrorCode::kInvalidArgument, {"num_hidden_layers", "1.5"}},
    {R"({"hidden_size": "8"})", ErrorCode::kInvalidArgument, {"hidden_size", "\"8\""}},
    {R"({"hidden_size": null})", ErrorCode::kInvalidArgument, {"hidden_size", "missing"}},
    {R"({"hidden_size": 18446744073709551615})", ErrorCode::kInvalidArgument, {"hidden_size", "18446744073709551615"}},
    {R"({"vocab_size": 4294967296})", ErrorCode::kInvalidArgument, {"vocab_size"}},
    {R"({"intermediate_size": 0})", ErrorCode::kInvalidArgument, {"intermediate_size"}},
    {R"({"max_position_embeddings": 0})", ErrorCode::kInvalidArgument, {"max_position_embeddings"}},
    {R"({"num_attention_heads": 4096, "num_key_value_heads": 1, "head_dim": 1024})",
     ErrorCode::kInvalidArgument,
     {"num_attention_heads", "head_dim", "1024"}},
    {R"({"hidden_size": 1048576, "intermediate_size": 1048576, "num_hidden_layers": 1024, "vocab_size": 16777216,
         "num_attention_heads": 1024, "num_key_value_heads": 1024})",
     ErrorCode::kInvalidArgument,
     {"parameters"}},
    {R"({"rms_norm_eps": 0})", ErrorCode::kInvalidArgument, {"rms_norm_eps", "0"}},
    {R"({"rms_norm_eps": "1e-5"})", ErrorCode::kInvalidArgument, {"rms_norm_eps"}},
    {R"({"rope_theta": -1})", ErrorCode::kInvalidArgument, {"rope_theta", "-1"}},
    {R"({"eos_token_id": 32})", ErrorCode::kInvalidArgument, {"eos_token_id", "32"}},
    {R"({"eos_token_id": [2, -1]})", ErrorCode::kInvalidArgument, {"eos_token_id", "-1"}},
    {R"({"bos_token_id": "1"})", ErrorCode::kInvalidArgument, {"bos_token_id"}},
    {R"({"tie_word_embeddings": 1})", ErrorCode::kInvalidArgument, {"tie_word_embeddings"}},
};

TEST(ConfigTest, RefusesWhatItDoesNotDoNamingFieldValueAndExpectation) {
  for (const BadConfig& bad : kBadConfigs) {
    SCOPED_TRACE(bad.patch);
    const auto config = parse(small_with(bad.patch));
    ASSERT_FALSE(config);
    EXPECT_EQ(config.error().code, bad.code);
    EXPECT_THAT(config.error().message, HasSubstr("dir/config.json"));
    for (const char* part : bad.expected) {
      if (part == nullptr) continue;
      EXPECT_THAT(config.error().message, HasSubstr(part));
    }
  }
}

TEST(ConfigTest, RefusesAFileThatIsNoObject) {
  EXPECT_FALSE(parse(Json::array()));
  EXPECT_FALSE(parse(Json("llama")));
  TemporaryFolder folder = *TemporaryFolder::create();
  EXPECT_THAT(read_config(folder.path() / "config.json").error().message, HasSubstr("config.json"));
  ASSERT_TRUE(write_file_atomic(folder.path() / "config.json", "{\"model_type\": \"llama\""));
  EXPECT_THAT(read_config(folder.path() / "config.json").error().message, HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace nmc::model
