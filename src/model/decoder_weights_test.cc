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

}  // namespace
}  // namespace nmc::model
