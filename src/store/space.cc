#include "store/space.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {
namespace {

// Small enough that making room for an object of another size costs few blocks, large enough that extents are few.
std::uint32_t extent_blocks_for(std::uint64_t capacity, std::uint64_t block_bytes) {
  if (block_bytes == 0) return 1;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(capacity / block_bytes / 32, 1, 32));
}

}  // namespace

SegmentSpace::SegmentSpace(std::uint64_t capacity, std::uint64_t block_bytes)
    : heap_(capacity, block_bytes),
      extents_(heap_, block_bytes, extent_blocks_for(capacity, block_bytes), extent_owner) {}

std::optional<Place> SegmentSpace::take_block(std::uint32_t entry) {
  const auto place = extents_.take(entry);
  if (!place) return std::nullopt;
  used_bytes_ += extents_.block_bytes();
  return Place{place->offset, extents_.block_bytes(), true, place->extent, place->slot};
}

std::optional<Place> SegmentSpace::take_bytes(std::uint64_t bytes, std::uint32_t entry, OffsetAllocator::Side side) {
  const auto piece = heap_.take(bytes, side, entry);
  if (!piece) return std::nullopt;
  const std::uint64_t taken = OffsetAllocator::round_up(bytes);
  used_bytes_ += taken;
  return Place{piece->offset, taken, false, piece->chunk, 0};
}

void SegmentSpace::give(const Place& place) {
  used_bytes_ -= place.bytes;
  if (place.is_block)
    extents_.give({place.offset, place.chunk_or_extent, place.slot});
  else
    heap_.give(place.chunk_or_extent);
}

std::vector<Place> SegmentSpace::restore(std::span<const OffsetAllocator::Range> ranges) {
  NMC_REQUIRE(extents_.block_bytes() == 0);
  const std::vector<std::uint32_t> chunks = heap_.restore(ranges);
  std::vector<Place> places;
  places.reserve(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    places.push_back({ranges[i].offset, ranges[i].bytes, false, chunks[i], 0});
    used_bytes_ += ranges[i].bytes;
  }
  return places;
}

std::uint64_t SegmentSpace::blocks_total() const {
  return extents_.block_bytes() == 0 ? 0 : heap_.capacity() / extents_.block_bytes();
}

std::vector<std::uint32_t> SegmentSpace::entries_between(std::uint32_t first, std::uint32_t last) const {
  std::vector<std::uint32_t> entries;
  for (std::uint32_t at = first;; at = heap_.next_chunk(at)) {
    all_entries(heap_.chunk(at), [&](std::uint32_t entry) {
      entries.push_back(entry);
      return true;
    });
    if (at == last) break;
  }
  std::sort(entries.begin(), entries.end());  // an entry has two chunks when its key has one
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  return entries;
}

}  // namespace nmc::store
