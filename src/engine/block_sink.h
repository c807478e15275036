// Puts a snapshot's spans into blocks that were reserved for it.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "kv/snapshot.h"
#include "store/store.h"

namespace nmc::engine {

// Borrows the blocks.
class BlockSink final : public kv::SnapshotSink {
 public:
  explicit BlockSink(std::span<const store::Reservation> blocks) : blocks_(blocks) {}

  Result<void> on_header(const kv::SnapshotHeader& header) override {
    if (header.blocks() == blocks_.size()) return {};
    return corrupt("snapshot: {} blocks came, {} were announced", header.blocks(), blocks_.size());
  }
  std::byte* block(std::uint32_t index) override { return blocks_[index].bytes().data(); }

 private:
  std::span<const store::Reservation> blocks_;
};

}  // namespace nmc::engine
