#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/test_files.h"

namespace nmc::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";

// A small checkpoint on disk, as verbs.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { write("config.json", kSmallConfig); }

  Path path(std::string_view name) const { return folder_.path() / name; }
  void write(std::string_view name, std::string_view content) { write_test_file(path(name), content); }
  std::string read(std::string_view name) { return *read_file(path(name)); }
  Result<Checkpoint> open() { return Checkpoint::open(folder_.path()); }
  std::string open_error() {
    const auto checkpoint = open();
    return checkpoint ? "opened" : checkpoint.error().message;
  }

  std::vector<ExpectedTensor> tensors() { return expected_tensors(*read_config(path("config.json"))); }
  void write_single() { write("model.safetensors", safetensors_of(tensors())); }
  // The first five tensors in one shard, the others in the second.
  void write_shards() {
    const auto all = tensors();
    shard1_.assign(all.begin(), all.begin() + 5);
    shard2_.assign(all.begin() + 5, all.end());
    write(kShard1, safetensors_of(shard1_));
    write(kShard2, safetensors_of(shard2_));
    for (const ExpectedTensor& tensor : shard1_) index_["weight_map"][tensor.name] = kShard1;
    for (const ExpectedTensor& tensor : shard2_) index_["weight_map"][tensor.name] = kShard2;
    write_index();
  }
  void write_index() { write("model.safetensors.index.json", dump_json(index_)); }

  TemporaryFolder folder_ = *TemporaryFolder::create();
  std::vector<ExpectedTensor> shard1_, shard2_;
  Json index_;
};

TEST_F(CheckpointTest, OpensOneFile) {
  write_single();
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto view = checkpoint->tensor("model.layers.1.self_attn.k_proj.weight", {4, 8});
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->dtype, Dtype::kBf16);
  EXPECT_EQ(view->bytes.size(), 64u);
  EXPECT_THAT(view->shape, ElementsAre(4, 8));
  EXPECT_EQ(checkpoint->weight_bytes(), checkpoint->config().parameters() * 2);
  EXPECT_TRUE(checkpoint->has("lm_head.weight"));
}

TEST_F(CheckpointTest, OpensShards) {
  write_shards();
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->tensor("model.embed_tokens.weight", {32, 8}));
  EXPECT_TRUE(checkpoint->tensor("lm_head.weight", {32, 8}));
}

TEST_F(CheckpointTest, TensorRefusesAnotherShapeTypeOrName) {
  auto all = tensors();
  write("model.safetensors", safetensors_of(all));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint);
  EXPECT_THAT(
      checkpoint->tensor("lm_head.weight", {8, 32}).error().message,
      AllOf(HasSubstr("model.safetensors"), HasSubstr("lm_head.weight"), HasSubstr("[8, 32]"), HasSubstr("[32, 8]")));
  EXPECT_THAT(checkpoint->tensor("nothing", {1}).error().message, HasSubstr("\"nothing\" is missing"));
}

TEST_F(CheckpointTest, RefusesATypeItCannotCompute) {
  std::string content = safetensors_of(tensors());
  const std::string from = R"("model.norm.weight":{"dtype":"BF16")";
  content.replace(content.find(from), from.size(), R"("model.norm.weight":{"dtype":"I16" )");
  const std::uint64_t length = content.find("}}") + 2 - 8;
  std::memcpy(content.data(), &length, 8);
  write("model.safetensors", content);
  EXPECT_THAT(open_error(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("BF16"), HasSubstr("I16")));
}

TEST_F(CheckpointTest, DigestDoesNotDependOnSharding) {
  write_single();
  ThreadPool pool(2);
  const Digest whole = open()->weights_digest(pool);
  ASSERT_TRUE(std::filesystem::remove(path("model.safetensors")));
  write_shards();
  EXPECT_EQ(open()->weights_digest(pool), whole);
  ThreadPool one(1);
  EXPECT_EQ(open()->weights_digest(one), whole);
}

TEST_F(CheckpointTest, DigestChangesWithAnyByte) {
  write_single();
  ThreadPool pool(2);
  const Digest whole = open()->weights_digest(pool);
  std::string content = read("model.safetensors");
  for (const std::size_t from_end : {std::size_t{1}, std::size_t{1000}, std::size_t{2000}}) {
    std::string changed = content;
    changed[changed.size() - from_end] ^= 1;
    write("model.safetensors", changed);
    EXPECT_NE(open()->weights_digest(pool), whole);
  }
}

TEST_F(CheckpointTest, DigestIsTheDocumentedTree) {
  // Two tensors, one of more than a leaf; by hand from the header's words.
  write("config.json", R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 2, "vocab_size": 1500, "tie_word_embeddings": true})");
  const auto all = tensors();
  write("model.safetensors", safetensors_of(all));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  std::vector<ExpectedTensor> sorted = all;
  std::ranges::sort(sorted, {}, &ExpectedTensor::name);
  Sha256 root;
  root.update_field("nano-mooncake/weights/v1");
  for (const ExpectedTensor& tensor : sorted) {
    const auto bytes = checkpoint->tensor(tensor.name, tensor.shape)->bytes;
    Sha256 hash;
    std::string shape;
    for (const std::uint64_t size : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", size);
    hash.update_field(tensor.name).update_field("BF16").update_field(shape);
    for (std::size_t at = 0; at < bytes.size(); at += 1 << 20) {
      const Digest leaf = sha256(bytes.subspan(at, std::min<std::size_t>(1 << 20, bytes.size() - at)));
      hash.update(std::as_bytes(std::span(leaf.bytes)));
    }
    const Digest digest = hash.finish();
    root.update(std::as_bytes(std::span(digest.bytes)));
  }
  ThreadPool pool(2);
  EXPECT_EQ(checkpoint->weights_digest(pool), root.finish());
}

TEST_F(CheckpointTest, AShardOfAnotherSizeIsRefusedWithBothSizes) {
  write_shards();
  const std::string whole = read(kShard2);
  const std::size_t data = [&] {
    std::size_t bytes = 0;
    for (const ExpectedTensor& tensor : shard2_) {
      std::size_t size = 2;
      for (const std::uint64_t n : tensor.shape) size *= n;
      bytes += size;
    }
    return bytes;
  }();
  const auto expected = fmt::format("{} bytes of data expected", data);
  write(kShard2, std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_THAT(open_error(), AllOf(HasSubstr(kShard2), HasSubstr(expected), HasSubstr(fmt::format("holds {}", data - 1)),
                                  HasSubstr("\"lm_head.weight\" is missing")));
  write(kShard2, std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_THAT(open_error(), HasSubstr(kShard2));
  write(kShard2, std::string_view(whole).substr(0, 4));
  EXPECT_THAT(open_error(), AllOf(HasSubstr(kShard2), HasSubstr("4 bytes")));
  write(kShard2, whole + "x");
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr(kShard2), HasSubstr(expected), HasSubstr(fmt::format("holds {}", data + 1))));
  write(kShard2, whole);
  EXPECT_TRUE(open());
}

TEST_F(CheckpointTest, AFileCutByAPageIsRefused) {
  write("config.json", R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 64, "vocab_size": 512})");
  write_single();
  ASSERT_TRUE(open());
  const std::string whole = read("model.safetensors");
  write("model.safetensors", std::string_view(whole).substr(0, whole.size() - 4096));
  EXPECT_THAT(open_error(), AllOf(HasSubstr("model.safetensors"), HasSubstr("bytes of data expected")));
}

TEST_F(CheckpointTest, AMissingShardIsNamedWithItsTensors) {
  write_shards();
  ASSERT_TRUE(std::filesystem::remove(path(kShard2)));
  const std::string error = open_error();
  EXPECT_THAT(error, HasSubstr(kShard2));
  for (const ExpectedTensor& tensor : shard2_) EXPECT_THAT(error, HasSubstr(tensor.name));
}

TEST_F(CheckpointTest, EveryTensorThatNoShardHasIsNamed) {
  write_shards();
  index_["weight_map"]["ghost.one"] = kShard1;
  index_["weight_map"]["ghost.two"] = kShard2;
  write_index();
  EXPECT_THAT(open_error(), AllOf(HasSubstr("\"ghost.one\" is missing"), HasSubstr("\"ghost.two\" is missing")));
}

TEST_F(CheckpointTest, EveryTensorInTwoShardsIsNamed) {
  write_shards();
  std::vector<ExpectedTensor> more = shard2_;
  more.push_back(shard1_[0]);
  more.push_back(shard1_[3]);
  write(kShard2, safetensors_of(more));
  EXPECT_THAT(open_error(), AllOf(HasSubstr(fmt::format("\"{}\" is in two files", shard1_[0].name)),
                                  HasSubstr(fmt::format("\"{}\" is in two files", shard1_[3].name)), HasSubstr(kShard1),
                                  HasSubstr(kShard2)));
}

TEST_F(CheckpointTest, AnIndexThatSwapsShardsIsRefused) {
  write_shards();
  index_["weight_map"][shard1_[0].name] = kShard2;
  index_["weight_map"].erase(shard2_[1].name);
  write_index();
  EXPECT_THAT(
      open_error(),
      AllOf(HasSubstr(fmt::format("\"{}\" is expected in {}, but lies in {}", shard1_[0].name, kShard2, kShard1)),
            HasSubstr(fmt::format("\"{}\" of {} isn't in the index", shard2_[1].name, kShard2))));
}

TEST_F(CheckpointTest, ShardsWithoutAnIndexAreRefused) {
  write_shards();
  ASSERT_TRUE(std::filesystem::remove(path("model.safetensors.index.json")));
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr("model.safetensors.index.json is missing"), HasSubstr(kShard1), HasSubstr(kShard2)));
}

TEST_F(CheckpointTest, AWholeFileBesideAnIndexIsAmbiguous) {
  write_shards();
  write_single();
  EXPECT_THAT(open_error(), HasSubstr("unclear"));
}

TEST_F(CheckpointTest, AShardOfAnotherModelIsRefusedByItsShapes) {
  write_shards();
  auto other = shard2_;
  for (ExpectedTensor& tensor : other) tensor.shape.back() *= 2;
  write(kShard2, safetensors_of(other));
  const std::string error = open_error();
  for (const ExpectedTensor& tensor : other) {
    EXPECT_THAT(error, AllOf(HasSubstr(tensor.name), HasSubstr(shape_text(tensor.shape))));
  }
  EXPECT_THAT(error, HasSubstr(kShard2));
}

TEST_F(CheckpointTest, AConfigOfAnotherShapeIsRefused) {
  write_single();
  Json config = *parse_json(kSmallConfig, "config");
  config["intermediate_size"] = 13;
  write("config.json", dump_json(config));
  EXPECT_THAT(open_error(), AllOf(HasSubstr("mlp.gate_proj"), HasSubstr("[13, 8]"), HasSubstr("[12, 8]")));
}

TEST_F(CheckpointTest, EveryMissingTensorIsNamedUpToABound) {
  auto all = tensors();
  std::erase_if(all, [](const ExpectedTensor& tensor) { return tensor.name.find("q_proj") != std::string::npos; });
  write("model.safetensors", safetensors_of(all));
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr("layers.0.self_attn.q_proj.weight\" is missing"),
                    HasSubstr("layers.1.self_attn.q_proj.weight\" is missing"), Not(HasSubstr("k_proj"))));
  Json config = *parse_json(kSmallConfig, "config");
  config["num_hidden_layers"] = 1000;
  write("config.json", dump_json(config));
  const std::string error = open_error();
  EXPECT_THAT(error, HasSubstr("more"));
  EXPECT_LT(error.size(), 20'000u);
}

TEST_F(CheckpointTest, TensorsWithoutAPlaceAreRefusedButBuffersPass) {
  auto all = tensors();
  all.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}});
  write("model.safetensors", safetensors_of(all));
  EXPECT_TRUE(open());
  all.push_back({"model.layers.0.self_attn.q_proj.bias", {8}});
  write("model.safetensors", safetensors_of(all));
  EXPECT_THAT(open_error(), AllOf(HasSubstr("q_proj.bias"), HasSubstr("no place")));
}

TEST_F(CheckpointTest, TheOutputProjectionMayBeAbsentOnlyWhenTied) {
  auto all = tensors();
  all.pop_back();
  write("model.safetensors", safetensors_of(all));
  EXPECT_THAT(open_error(), HasSubstr("\"lm_head.weight\" is missing"));
  Json config = *parse_json(kSmallConfig, "config");
  config["tie_word_embeddings"] = true;
  write("config.json", dump_json(config));
  EXPECT_TRUE(open()) << open_error();
  all.push_back({"lm_head.weight", {32, 8}});
  write("model.safetensors", safetensors_of(all));
  EXPECT_TRUE(open()) << open_error();
}

TEST_F(CheckpointTest, GenerationConfigHasTheLastWordOnTheEnd) {
  write_single();
  write("generation_config.json", R"({"eos_token_id": [2, 5]})");
  EXPECT_THAT(open()->config().eos_ids, ElementsAre(2, 5));
  write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_THAT(open()->config().eos_ids, ElementsAre(2));
  write("generation_config.json", R"({"eos_token_id": 99})");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("generation_config.json"), HasSubstr("99")));
}

TEST_F(CheckpointTest, RefusesABadIndex) {
  write_shards();
  for (const char* index : {"[]", "{}", R"({"weight_map": 3})", R"({"weight_map": {}})", R"({"weight_map": {"a": 3}})",
                            R"({"weight_map": {"a": "../x.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
                            R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": ".."}})", R"({"weight_map": )"}) {
    SCOPED_TRACE(index);
    write("model.safetensors.index.json", index);
    EXPECT_THAT(open_error(), HasSubstr("model.safetensors.index.json"));
  }
}

TEST_F(CheckpointTest, RefusesAFolderWithoutWeightsOrConfig) {
  EXPECT_THAT(open_error(), AllOf(HasSubstr("model.safetensors"), HasSubstr("neither")));
  write("other.safetensors", safetensors_of(tensors()));
  EXPECT_THAT(open_error(), AllOf(HasSubstr("other.safetensors"), HasSubstr("model.safetensors alone")));
  ASSERT_TRUE(std::filesystem::remove(path("config.json")));
  EXPECT_THAT(open_error(), HasSubstr("config.json"));
  EXPECT_THAT(Checkpoint::open(path("nowhere")).error().message, HasSubstr("nowhere"));
}

}  // namespace
}  // namespace nmc::model
