#include "engine/kv_export.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/kv_import.h"

namespace nmc::engine {
namespace {

class KvExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_.layout.layers = 2;
    context_.layout.kv_heads = 1;
    context_.layout.head_dim = 4;
    context_.layout.block_tokens = 16;
    context_.layout.dtype = Dtype::kF32;
    context_.clock = &clock_;
    context_.lease = std::chrono::seconds(10);
    store::StoreOptions options;
    options.block_bytes = context_.layout.block_bytes();
    options.dram_bytes = 64 * options.block_bytes;
    options.tail_bytes = 0;
    store_ = *store::Store::create(options);
    context_.store = store_.get();
    exports_ = std::make_unique<KvExports>(context_);
  }

  // As a worker has it when its prompt is computed and nothing is reused.
  std::unique_ptr<Sequence> sequence(std::size_t tokens, std::byte fill) {
    auto made = std::make_unique<Sequence>();
    made->request.prompt.assign(tokens, 1);
    made->tokens = made->request.prompt;
    made->computed = tokens;
    std::vector<store::Reservation> blocks = *store_->reserve_blocks(context_.layout.blocks_for(tokens));
    for (store::Reservation& block : blocks) {
      std::ranges::fill(block.bytes(), fill);
      made->add_block(Block(std::move(block)));
    }
    return made;
  }

  std::vector<BlockName> hand_over(std::uint64_t number, std::size_t tokens, std::byte fill) {
    const auto made = sequence(tokens, fill);
    exports_->begin(number, *made);
    auto names = exports_->complete(number, *made);
    EXPECT_TRUE(names) << names.error().message;
    return *std::move(names);
  }

  // How many leading tokens a taker gets, each byte of which must be `fill`.
  std::size_t take(std::vector<BlockName> names, std::size_t tokens, std::byte fill) {
    Sequence taker;
    int taken = 0;
    taker.parcel = named_parcel(context_, std::move(names), tokens, [&] { ++taken; });
    InboundKv inbound;
    EXPECT_TRUE(inbound.receive(taker));
    EXPECT_EQ(taken, 1);
    for (const Block& block : taker.blocks) {
      for (std::size_t i = 0; i < context_.layout.block_bytes(); ++i) EXPECT_EQ(block.address()[i], fill);
    }
    return taker.computed;
  }

  ManualClock clock_;
  KvContext context_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<KvExports> exports_;
};

TEST_F(KvExportTest, WhatWasHandedOverIsThereUntilItIsTaken) {
  const auto names = hand_over(1, 40, std::byte{7});
  ASSERT_EQ(names.size(), 3u);
  EXPECT_TRUE(std::ranges::all_of(names, &BlockName::sealed));
  EXPECT_EQ(exports_->blocks_held(), 3u);
  EXPECT_EQ(take(names, 40, std::byte{7}), 40u);
  exports_->release(1);
  EXPECT_EQ(exports_->count(), 0u);
  EXPECT_EQ(store_->held(), 0u);
  EXPECT_EQ(store_->stats().objects, 0u) << "sealed blocks are nobody else's";
}

TEST_F(KvExportTest, AfterTheLeaseItIsGoneWhoeverUsesTheMemoryNow) {
  const auto names = hand_over(1, 40, std::byte{7});
  clock_.advance(std::chrono::seconds(9));
  exports_->release_expired();
  EXPECT_EQ(exports_->count(), 1u);
  clock_.advance(std::chrono::seconds(1));
  exports_->release_expired();
  EXPECT_EQ(exports_->count(), 0u);
  EXPECT_EQ(store_->held(), 0u);
  const auto others = hand_over(2, 60 * 16, std::byte{9});  // in the same memory
  EXPECT_EQ(take(names, 40, std::byte{7}), 0u);
  EXPECT_EQ(take(others, 60 * 16, std::byte{9}), 60u * 16);
}

TEST_F(KvExportTest, ASlowTakerThatRenewsIsWaitedFor) {
  const auto names = hand_over(1, 40, std::byte{7});
  for (int i = 0; i < 5; ++i) {
    clock_.advance(std::chrono::seconds(8));
    exports_->renew(1);
    exports_->release_expired();
  }
  EXPECT_EQ(take(names, 40, std::byte{7}), 40u);
  exports_->release(1);
}

// The same key is not enough: it has to be that very object.
TEST_F(KvExportTest, AnotherObjectOfThatNameIsNotTaken) {
  auto names = hand_over(1, 40, std::byte{7});
  names[1].generation += 1;
  EXPECT_EQ(take(names, 40, std::byte{7}), 16u) << "the blocks before it are good";
  exports_->release(1);
}

TEST_F(KvExportTest, ReleasingTwiceOrWhatNeverWasIsNothing) {
  hand_over(1, 40, std::byte{7});
  exports_->release(1);
  exports_->release(1);
  exports_->release(99);
  exports_->renew(99);
  EXPECT_EQ(exports_->count(), 0u);
}

}  // namespace
}  // namespace nmc::engine
