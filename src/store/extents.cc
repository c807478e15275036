#include "store/extents.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {

BlockExtents::BlockExtents(OffsetAllocator& heap, std::uint64_t block_bytes, std::uint32_t extent_blocks,
                           std::uint64_t (*owner_of)(std::uint32_t extent))
    : heap_(heap),
      block_bytes_(OffsetAllocator::round_up(block_bytes)),
      extent_blocks_(extent_blocks),
      owner_of_(owner_of) {
  NMC_REQUIRE(extent_blocks > 0);
}

std::optional<BlockExtents::Place> BlockExtents::take(std::uint32_t block) {
  NMC_REQUIRE(block != kNoBlock && block_bytes_ > 0);
  if (roomy_.empty() && !add_extent()) return std::nullopt;
  const std::uint32_t number = roomy_.begin()->second;
  Extent& extent = extents_[number];
  const auto free = std::find(extent.blocks.begin(), extent.blocks.end(), kNoBlock);
  *free = block;
  --free_slots_;
  if (++extent.used == extent.blocks.size()) roomy_.erase(roomy_.begin());
  const auto slot = static_cast<std::uint32_t>(free - extent.blocks.begin());
  return Place{extent.offset + slot * block_bytes_, number, slot};
}

bool BlockExtents::add_extent() {
  const std::uint32_t number = spare_.empty() ? static_cast<std::uint32_t>(extents_.size()) : spare_.back();
  for (std::uint32_t blocks = extent_blocks_; blocks > 0; blocks /= 2) {
    const auto piece = heap_.take(blocks * block_bytes_, OffsetAllocator::Side::kLow, owner_of_(number));
    if (!piece) continue;
    if (spare_.empty())
      extents_.emplace_back();
    else
      spare_.pop_back();
    extents_[number] = {piece->offset, piece->chunk, 0, std::vector<std::uint32_t>(blocks, kNoBlock)};
    free_slots_ += blocks;
    roomy_.insert(by_address(number));
    return true;
  }
  return false;
}

void BlockExtents::give(const Place& place) {
  NMC_REQUIRE(place.extent < extents_.size() && place.slot < extents_[place.extent].blocks.size() &&
                  extents_[place.extent].blocks[place.slot] != kNoBlock,
              "extent={} slot={}", place.extent, place.slot);
  Extent& extent = extents_[place.extent];
  extent.blocks[place.slot] = kNoBlock;
  ++free_slots_;
  if (--extent.used > 0) {
    roomy_.insert(by_address(place.extent));
    return;
  }
  roomy_.erase(by_address(place.extent));
  free_slots_ -= extent.blocks.size();
  heap_.give(extent.chunk);
  extent = Extent{};
  spare_.push_back(place.extent);
}

}  // namespace nmc::store
