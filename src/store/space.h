// Where the bytes of a segment's objects lie: blocks in extents, everything else directly in the heap, from its other
// end. Knows entries by number only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "store/allocator.h"
#include "store/extents.h"

namespace nmc::store {

// A range that belongs to an entry, with what giving it back needs.
struct Place {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // rounded up
  bool is_block = false;
  std::uint32_t chunk_or_extent = 0;
  std::uint32_t slot = 0;
};

// Not thread-safe.
class SegmentSpace {
 public:
  // `block_bytes` 0: there are no blocks.
  SegmentSpace(std::uint64_t capacity, std::uint64_t block_bytes);
  SegmentSpace(const SegmentSpace&) = delete;
  SegmentSpace& operator=(const SegmentSpace&) = delete;

  std::optional<Place> take_block(std::uint32_t entry);
  std::optional<Place> take_bytes(std::uint64_t bytes, std::uint32_t entry,
                                  OffsetAllocator::Side side = OffsetAllocator::Side::kHigh);
  void give(const Place& place);
  // For a new space without blocks: these ranges, as OffsetAllocator::restore() wants them, are taken; `owner` is an
  // entry.
  std::vector<Place> restore(std::span<const OffsetAllocator::Range> ranges);

  std::uint64_t capacity() const { return heap_.capacity(); }
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t blocks_total() const;
  std::uint64_t blocks_free() const { return extents_.free_slots() + heap_.free_units(); }

  // Blocks that could be taken now if every entry with evictable(entry) were gone.
  template <class Evictable>
  std::uint64_t blocks_possible(Evictable&& evictable) const {
    return extents_.block_bytes() == 0 ? 0 : pieces_possible(extents_.block_bytes(), UINT64_MAX, evictable);
  }
  // The same for pieces of another size, of a space without blocks. Counts until there are `enough`.
  template <class Evictable>
  std::uint64_t pieces_possible(std::uint64_t piece_bytes, std::uint64_t enough, Evictable&& evictable) const;

  // The entries that lie in the way of `bytes` in one piece, where the most recently used of them is oldest.
  // `stamp_of(entry)` is empty for an entry that can't go. Nothing: no such piece can be had.
  template <class StampOf>
  std::optional<std::vector<std::uint32_t>> entries_in_the_way(std::uint64_t bytes, StampOf&& stamp_of) const;

 private:
  static constexpr std::uint64_t kExtentOwner = std::uint64_t{1} << 32;  // owner words: entry, or this | extent
  static std::uint64_t extent_owner(std::uint32_t extent) { return kExtentOwner | extent; }
  static bool is_extent(std::uint64_t owner) { return (owner & kExtentOwner) != 0; }

  // Calls visit(entry) for each entry in a used chunk, until it returns false; whether it never did.
  template <class Visit>
  bool all_entries(const OffsetAllocator::Chunk& chunk, Visit&& visit) const;
  // The newest stamp in a chunk (0 when free), or nothing when something in it can't go.
  template <class StampOf>
  std::optional<std::uint64_t> newest_stamp(const OffsetAllocator::Chunk& chunk, StampOf&& stamp_of) const;
  std::vector<std::uint32_t> entries_between(std::uint32_t first, std::uint32_t last) const;

  OffsetAllocator heap_;
  BlockExtents extents_;
  std::uint64_t used_bytes_ = 0;
};

template <class Visit>
bool SegmentSpace::all_entries(const OffsetAllocator::Chunk& chunk, Visit&& visit) const {
  if (!chunk.used) return true;
  if (!is_extent(chunk.owner)) return visit(static_cast<std::uint32_t>(chunk.owner));
  for (const std::uint32_t entry : extents_.blocks_in(static_cast<std::uint32_t>(chunk.owner))) {
    if (entry != BlockExtents::kNoBlock && !visit(entry)) return false;
  }
  return true;
}

template <class Evictable>
std::uint64_t SegmentSpace::pieces_possible(std::uint64_t piece_bytes, std::uint64_t enough,
                                            Evictable&& evictable) const {
  std::uint64_t pieces = 0, run_bytes = 0;
  for (auto at = heap_.first_chunk(); at != OffsetAllocator::kNone; at = heap_.next_chunk(at)) {
    const OffsetAllocator::Chunk chunk = heap_.chunk(at);
    if (chunk.used && is_extent(chunk.owner)) {
      for (const std::uint32_t entry : extents_.blocks_in(static_cast<std::uint32_t>(chunk.owner))) {
        if (entry == BlockExtents::kNoBlock || evictable(entry)) ++pieces;
      }
    } else if (!chunk.used || evictable(static_cast<std::uint32_t>(chunk.owner))) {
      run_bytes += chunk.bytes;
      if (pieces + run_bytes / piece_bytes >= enough) break;
      continue;
    }
    pieces += run_bytes / piece_bytes;
    run_bytes = 0;
  }
  return pieces + run_bytes / piece_bytes;
}

template <class StampOf>
std::optional<std::uint64_t> SegmentSpace::newest_stamp(const OffsetAllocator::Chunk& chunk, StampOf&& stamp_of) const {
  std::uint64_t newest = 0;
  const bool all = all_entries(chunk, [&](std::uint32_t entry) {
    const std::optional<std::uint64_t> stamp = stamp_of(entry);
    if (stamp && *stamp > newest) newest = *stamp;
    return stamp.has_value();
  });
  return all ? std::optional(newest) : std::nullopt;
}

// Slides a window of at least `bytes` over the chunks in address order and keeps the one whose newest stamp is oldest.
// The deque holds the chunks of the window that could be its newest, newest first.
template <class StampOf>
std::optional<std::vector<std::uint32_t>> SegmentSpace::entries_in_the_way(std::uint64_t bytes,
                                                                           StampOf&& stamp_of) const {
  struct Seen {
    std::uint32_t chunk;
    std::uint64_t stamp;
  };
  std::deque<Seen> newest;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> best;
  std::uint64_t best_stamp = 0, window_bytes = 0;
  std::uint32_t left = heap_.first_chunk();
  for (auto right = left; right != OffsetAllocator::kNone; right = heap_.next_chunk(right)) {
    const OffsetAllocator::Chunk chunk = heap_.chunk(right);
    const std::optional<std::uint64_t> stamp = newest_stamp(chunk, stamp_of);
    if (!stamp) {
      newest.clear();
      window_bytes = 0;
      left = heap_.next_chunk(right);
      continue;
    }
    while (!newest.empty() && newest.back().stamp <= *stamp) newest.pop_back();
    newest.push_back({right, *stamp});
    window_bytes += chunk.bytes;
    while (window_bytes - heap_.chunk(left).bytes >= bytes) {
      if (newest.front().chunk == left) newest.pop_front();
      window_bytes -= heap_.chunk(left).bytes;
      left = heap_.next_chunk(left);
    }
    if (window_bytes < bytes || (best && best_stamp <= newest.front().stamp)) continue;
    best = {left, right};
    best_stamp = newest.front().stamp;
  }
  if (!best) return std::nullopt;
  return entries_between(best->first, best->second);
}

}  // namespace nmc::store
