#include "model/decoder_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "model/tiny.h"

namespace nmc::model {
namespace {

using ::testing::HasSubstr;

std::vector<float> logits_of(const Decoder& decoder, ThreadPool& pool) {
  const kv::KvLayout layout = decoder.kv_layout(16);
  std::vector<std::byte> block(layout.block_bytes());
  std::byte* const blocks[] = {block.data()};
  const kv::TokenId tokens[] = {1, 2, 3};
  std::vector<float> logits(decoder.config().vocab);
  const Chunk chunk{.tokens = tokens, .start = 0, .blocks = blocks, .logits = logits.data()};
  Workspace workspace;
  decoder.forward(pool, std::span(&chunk, 1), 16, workspace);
  return logits;
}

Result<std::unique_ptr<Decoder>> make(ThreadPool& pool, const PackOptions& options) {
  RandomWeights weights(1, pool);
  return Decoder::create(tiny_config(), weights, Dtype::kBf16, pool, options);
}

TEST(DecoderWeightsTest, WhatIsTooLargeForMemoryLiesInAFileAndIsTheSame) {
  ThreadPool pool(2);
  TemporaryFolder folder = *TemporaryFolder::create();
  const auto in_memory = make(pool, {});
  const auto in_file = make(pool, {.in_memory_max = 1000, .folder = folder.path()});
  ASSERT_TRUE(in_memory && in_file);
  EXPECT_EQ(logits_of(**in_file, pool), logits_of(**in_memory, pool));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name, so nothing stays behind";
  const std::string maps = *read_file("/proc/self/maps");
  EXPECT_THAT(maps, HasSubstr(folder.path().string())) << "it was packed into memory";
}

TEST(DecoderWeightsTest, AFolderThatCantBeWrittenIsNamed) {
  ThreadPool pool(2);
  const auto decoder = make(pool, {.in_memory_max = 1000, .folder = "/nonexistent/folder"});
  ASSERT_FALSE(decoder);
  EXPECT_THAT(decoder.error().message, HasSubstr("/nonexistent/folder"));
}

TEST(DecoderWeightsTest, ProcessesOfAHostMapWhatOneOfThemPacked) {
  ThreadPool pool(2);
  TemporaryFolder folder = *TemporaryFolder::create();
  const Path file = folder.path() / "weights";
  const auto own = make(pool, {});
  const auto made = make(pool, {.share = PackOptions::Share::kMake, .shared_file = file});
  ASSERT_TRUE(own && made) << made.error().message;
  const auto mapped = make(pool, {.share = PackOptions::Share::kMap, .shared_file = file});
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(logits_of(**mapped, pool), logits_of(**own, pool));
  EXPECT_EQ((*mapped)->weights_digest(), (*own)->weights_digest());
}

TEST(DecoderWeightsTest, PackedWeightsOfAnotherKindAreRefused) {
  ThreadPool pool(2);
  TemporaryFolder folder = *TemporaryFolder::create();
  const Path file = folder.path() / "weights";
  const PackOptions map{.share = PackOptions::Share::kMap, .shared_file = file};
  ASSERT_TRUE(make(pool, {.share = PackOptions::Share::kMake, .shared_file = file}));
  RandomWeights weights(1, pool);
  EXPECT_EQ(Decoder::create(tiny_config(), weights, Dtype::kF32, pool, map).error().code, ErrorCode::kVersionMismatch);
  ModelConfig other = tiny_config();
  other.rope_theta *= 2;
  EXPECT_EQ(Decoder::create(other, weights, Dtype::kBf16, pool, map).error().code, ErrorCode::kVersionMismatch);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_EQ(make(pool, map).error().code, ErrorCode::kCorrupt);
  std::filesystem::resize_file(file, 100);
  EXPECT_EQ(make(pool, map).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(make(pool, {.share = PackOptions::Share::kMake, .shared_file = file})) << "it exists";
}

}  // namespace
}  // namespace nmc::model
