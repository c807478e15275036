#include "kv/layout.h"

#include <gtest/gtest.h>

namespace nmc::kv {
namespace {

// The shape of TinyLlama-1.1B.
constexpr KvLayout kTinyLlama{.layers = 22, .kv_heads = 4, .head_dim = 64, .block_tokens = 16, .dtype = Dtype::kBf16};

TEST(KvLayout, SpansAddUpToTheBlock) {
  // K and V, 4 heads of 64, 16 tokens, 2 bytes.
  EXPECT_EQ(kTinyLlama.span_bytes(), 2u * 4 * 64 * 16 * 2);
  EXPECT_EQ(kTinyLlama.block_bytes(), 22u * 16384);
  EXPECT_EQ(kTinyLlama.span_offset(0), 0u);
  for (std::size_t layer = 1; layer <= kTinyLlama.layers; ++layer) {
    EXPECT_EQ(kTinyLlama.span_offset(layer) - kTinyLlama.span_offset(layer - 1), kTinyLlama.span_bytes());
  }
  EXPECT_EQ(kTinyLlama.span_offset(kTinyLlama.layers), kTinyLlama.block_bytes());
}

TEST(KvLayout, ElementSizeFollowsTheDtype) {
  KvLayout layout = kTinyLlama;
  layout.dtype = Dtype::kF32;
  EXPECT_EQ(layout.block_bytes(), 2 * kTinyLlama.block_bytes());
  layout.dtype = Dtype::kF16;
  EXPECT_EQ(layout.block_bytes(), kTinyLlama.block_bytes());
}

TEST(KvLayout, BlocksCoverTheTokens) {
  EXPECT_EQ(kTinyLlama.blocks_for(0), 0u);
  EXPECT_EQ(kTinyLlama.blocks_for(1), 1u);
  EXPECT_EQ(kTinyLlama.blocks_for(16), 1u);
  EXPECT_EQ(kTinyLlama.blocks_for(17), 2u);
}

TEST(KvLayout, LargeShapesDontWrap) {
  constexpr KvLayout kLarge{
      .layers = 128, .kv_heads = 128, .head_dim = 256, .block_tokens = 1024, .dtype = Dtype::kF32};
  EXPECT_EQ(kLarge.block_bytes(), std::size_t{128} * 2 * 128 * 256 * 1024 * 4);
}

TEST(KvLayout, ReadsInASentence) { EXPECT_EQ(kTinyLlama.to_string(), "22 layers, 4 kv heads of 64, 16 tokens, bf16"); }

TEST(KvLayout, EqualMeansEveryField) {
  KvLayout layout = kTinyLlama;
  EXPECT_EQ(layout, kTinyLlama);
  layout.block_tokens = 32;
  EXPECT_NE(layout, kTinyLlama);
}

}  // namespace
}  // namespace nmc::kv
