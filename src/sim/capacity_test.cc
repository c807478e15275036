#include "sim/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace nmc::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

CapacityRow row_of(const KvShape& shape, const CapacityQuestion& question) {
  Result<CapacityRow> row = capacity_of(shape, question);
  EXPECT_TRUE(row) << row.error().message;
  return row ? *row : CapacityRow{};
}

KvShape deepseek_v3() {
  const Json config = {{"model_type", "deepseek_v3"}, {"num_hidden_layers", 61}, {"num_attention_heads", 128},
                       {"num_key_value_heads", 128},  {"hidden_size", 7168},     {"kv_lora_rank", 512},
                       {"qk_rope_head_dim", 64},      {"qk_nope_head_dim", 128}, {"v_head_dim", 128},
                       {"torch_dtype", "bfloat16"}};
  const auto shape = kv_shape_from_json(config);
  EXPECT_TRUE(shape) << shape.error().message;
  return *shape;
}

// 32 layers of 8 KV heads of 128 in 2 bytes; 8192 tokens, 64 of them, over 8 ranks, at 20 GiB/s.
TEST(Capacity, OfTheWorkedExample) {
  const CapacityRow row = row_of({}, {});
  EXPECT_EQ(row.token_bytes, 128 * kKiB);
  EXPECT_EQ(row.request_bytes, 1 * kGiB);
  EXPECT_EQ(row.rank_request_bytes, 128 * kMiB);
  EXPECT_EQ(row.batch_bytes, 64 * kGiB);
  EXPECT_EQ(row.chunk_bytes, 32 * kMiB);
  EXPECT_DOUBLE_EQ(row.network_ms, 50.0);
  EXPECT_EQ(row.metadata_token_bytes, 0u);
  EXPECT_THAT(row.notes, IsEmpty());
}

TEST(Capacity, WhatIsAllocatedIsWholePages) {
  const CapacityRow row = row_of({}, {.tokens = 8193});
  EXPECT_EQ(row.allocated_tokens, 8208u);
  EXPECT_EQ(row.request_bytes, 8208u * 128 * kKiB);
  EXPECT_EQ(row.effective_request_bytes, 8193u * 128 * kKiB);
}

TEST(Capacity, QuantisedElementsComeWithMetadata) {
  const CapacityRow row = row_of({}, {.element_bytes = 1});
  EXPECT_EQ(row.token_bytes, 64 * kKiB);
  EXPECT_EQ(row.metadata_token_bytes, 2u * 32 * 8 * 2);  // a scale for each key and each value
  EXPECT_EQ(row.metadata_request_bytes, 8192u * 1024);
  EXPECT_GT(row.network_with_metadata_ms, row.network_ms);
  const CapacityRow fine = row_of({}, {.element_bytes = 1, .quant_group = 48, .scale_bytes = 4, .zero_point = true});
  EXPECT_EQ(fine.metadata_token_bytes, 2u * 32 * 8 * 3 * 4 * 2);  // 128 in groups of 48 are 3
}

TEST(Capacity, OfALatentHasItsOwnDimensions) {
  const CapacityRow row = row_of(deepseek_v3(), {});
  EXPECT_EQ(row.shape.attention, Attention::kMla);
  EXPECT_EQ(row.token_bytes, 70272u);  // 61 layers of 512 + 64 in 2 bytes
  EXPECT_EQ(row.rank_request_bytes, row.request_bytes);
  ASSERT_EQ(row.notes.size(), 1u);
  EXPECT_THAT(row.notes[0], HasSubstr("each of the 8 ranks keeps all of it"));
  // The same model with a key and a value for each head: 192 and 128 elements of each of 128 heads.
  EXPECT_EQ(row_of(with_attention(deepseek_v3(), Attention::kMha), {}).token_bytes, 61u * 128 * (192 + 128) * 2);
}

TEST(Capacity, HeadsThatDoNotDivideAreReplicatedAndThatIsSaid) {
  const auto ranks = [](std::uint64_t heads, std::uint64_t kv_heads, std::uint64_t tensor_parallel) {
    KvShape shape;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    return row_of(shape, {.tensor_parallel = tensor_parallel});
  };
  const CapacityRow more_ranks = ranks(32, 4, 8);
  EXPECT_EQ(more_ranks.rank_heads, 1u);
  EXPECT_DOUBLE_EQ(more_ranks.replication, 2.0);
  EXPECT_THAT(more_ranks.notes.at(0), HasSubstr("4 KV heads don't divide over 8 ranks"));
  // 24 heads in groups of 4 over 4 ranks: each has 6 heads and reads 2 of 6 keys, so two keys lie twice.
  const CapacityRow uneven = ranks(24, 6, 4);
  EXPECT_EQ(uneven.rank_heads, 2u);
  EXPECT_DOUBLE_EQ(uneven.replication, 8.0 / 6);
  EXPECT_THAT(uneven.notes.at(0), HasSubstr("don't divide"));
  EXPECT_THAT(ranks(30, 6, 4).notes.back(), HasSubstr("engines refuse"));
  EXPECT_THAT(ranks(32, 8, 4).notes, IsEmpty());
}

// By going through all heads one by one.
TEST(Capacity, RanksKeepWhatTheirHeadsRead) {
  Rng rng(11);
  for (int round = 0; round < 500; ++round) {
    KvShape shape;
    shape.kv_heads = 1 + rng.below(12);
    shape.heads = shape.kv_heads * (1 + rng.below(8));
    shape.attention = Attention::kGqa;
    const std::uint64_t ranks = 1 + rng.below(shape.heads);
    std::uint64_t most = 0, all = 0;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      std::uint64_t kept = 0;
      for (std::uint64_t kv = 0; kv < shape.kv_heads; ++kv) {
        bool read = false;
        for (std::uint64_t head = 0; head < shape.heads; ++head) {
          const bool mine = head >= rank * shape.heads / ranks && head < (rank + 1) * shape.heads / ranks;
          read = read || (mine && head / (shape.heads / shape.kv_heads) == kv);
        }
        kept += read ? 1 : 0;
      }
      most = std::max(most, kept);
      all += kept;
    }
    const CapacityRow row = row_of(shape, {.tensor_parallel = ranks});
    ASSERT_EQ(row.rank_heads, most) << shape.heads << " " << shape.kv_heads << " " << ranks;
    ASSERT_DOUBLE_EQ(row.replication, static_cast<double>(all) / static_cast<double>(shape.kv_heads));
  }
}

TEST(Capacity, TheTableHasEachAttentionOnce) {
  const auto rows = capacity_table({}, {});
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 4u);
  EXPECT_EQ((*rows)[0].shape.attention, Attention::kGqa);
  EXPECT_EQ((*rows)[1].token_bytes, 512 * kKiB);  // 32 heads
  EXPECT_EQ((*rows)[2].token_bytes, 16 * kKiB);   // one
  EXPECT_EQ((*rows)[3].token_bytes, 32u * (512 + 64) * 2);
}

TEST(Capacity, WhatIsTooLargeToCountIsRefused) {
  KvShape shape;
  shape.layers = shape.kv_heads = shape.heads = shape.key_dim = shape.value_dim = 1 << 20;
  const auto row = capacity_of(shape, {.tokens = std::uint64_t{1} << 32});
  ASSERT_FALSE(row);
  EXPECT_THAT(row.error().message, HasSubstr("2^62"));
}

TEST(KvShape, IsReadFromTheConfigurationsOfFamilies) {
  const auto read = [](const Json& config) { return kv_shape_from_json(config); };
  const Json llama = {{"model_type", "llama"},    {"num_hidden_layers", 32}, {"num_attention_heads", 32},
                      {"num_key_value_heads", 8}, {"hidden_size", 4096},     {"torch_dtype", "bfloat16"}};
  EXPECT_EQ(row_of(*read(llama), {}).token_bytes, 128 * kKiB);
  Json qwen = llama;
  qwen["head_dim"] = 64;
  qwen["sliding_window"] = 4096;
  qwen["use_sliding_window"] = false;
  EXPECT_EQ(row_of(*read(qwen), {}).token_bytes, 64 * kKiB);
  EXPECT_THAT(row_of(*read(qwen), {}).notes, IsEmpty());
  Json mistral = llama;
  mistral["sliding_window"] = 4096;
  EXPECT_THAT(row_of(*read(mistral), {}).notes.at(0), HasSubstr("4096 tokens only"));
  Json alone = llama;
  alone.erase("num_key_value_heads");
  EXPECT_EQ(read(alone)->attention, Attention::kMha);
  EXPECT_EQ(read({{"model_type", "seeing"}, {"text_config", llama}})->kv_heads, 8u);

  const auto why = [&](Json config, const char* field, Json value) {
    config[field] = std::move(value);
    const auto shape = read(config);
    return shape ? std::string("taken") : shape.error().message;
  };
  EXPECT_THAT(why(llama, "num_key_value_heads", 5), HasSubstr("`num_key_value_heads`: expected a divisor"));
  EXPECT_THAT(why(llama, "num_hidden_layers", "many"), HasSubstr("`num_hidden_layers`"));
  EXPECT_THAT(why(llama, "hidden_size", 4097), HasSubstr("`hidden_size` (4097)"));
  EXPECT_THAT(why(llama, "kv_lora_rank", 512), HasSubstr("`qk_rope_head_dim`"));
}

}  // namespace
}  // namespace nmc::sim
