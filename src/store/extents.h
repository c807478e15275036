// Places for KV blocks, all of one size: slots of extents, which are larger pieces of the segment's heap. So blocks
// never fragment among objects of other sizes, and an extent whose last block goes returns to the heap whole.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "store/allocator.h"

namespace nmc::store {

// Not thread-safe.
class BlockExtents {
 public:
  static constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};

  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t extent = 0;
    std::uint32_t slot = 0;
  };

  // An extent is `extent_blocks` long, or shorter where the heap has no such piece. `heap` outlives this; extents
  // appear there with owner_of(extent number).
  BlockExtents(OffsetAllocator& heap, std::uint64_t block_bytes, std::uint32_t extent_blocks,
               std::uint64_t (*owner_of)(std::uint32_t extent));

  // A place for `block`, the caller's number: in the lowest extent with room, else in a new one. Nothing: heap is full.
  std::optional<Place> take(std::uint32_t block);
  void give(const Place& place);

  std::uint64_t block_bytes() const { return block_bytes_; }
  std::uint64_t free_slots() const { return free_slots_; }
  // The caller's numbers by slot, kNoBlock where a slot is free.
  std::span<const std::uint32_t> blocks_in(std::uint32_t extent) const { return extents_[extent].blocks; }

 private:
  struct Extent {
    std::uint64_t offset = 0;
    std::uint32_t chunk = 0;
    std::uint32_t used = 0;
    std::vector<std::uint32_t> blocks;
  };

  bool add_extent();
  std::pair<std::uint64_t, std::uint32_t> by_address(std::uint32_t extent) const {
    return {extents_[extent].offset, extent};
  }

  OffsetAllocator& heap_;
  std::uint64_t block_bytes_;
  std::uint32_t extent_blocks_;
  std::uint64_t (*owner_of_)(std::uint32_t);
  std::uint64_t free_slots_ = 0;
  std::vector<Extent> extents_;
  std::vector<std::uint32_t> spare_;                         // numbers of extents that went back
  std::set<std::pair<std::uint64_t, std::uint32_t>> roomy_;  // (offset, extent) of those with a free slot
};

}  // namespace nmc::store
