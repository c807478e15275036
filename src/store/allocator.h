// Hands out ranges of offsets, for the bytes of a segment. It keeps its books outside the memory it manages, and they
// are derived: whoever knows which ranges are in use can build them anew.
//
// Two-level segregated fit: free chunks hang in bins by size, eight bins to a power of two; neighbours are linked in
// address order, so a freed chunk joins free neighbours at once. Invariants:
//   1. Chunks in address order cover [0, capacity) without gap or overlap.
//   2. No two neighbours are both free.
//   3. A chunk is in a bin exactly when it is free.
// take() fails only when no free chunk is large enough. O(1) but for that last proof, which walks one bin.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nmc::store {

// Not thread-safe.
class OffsetAllocator {
 public:
  static constexpr std::uint64_t kAlignment = 64;  // of offsets and sizes: a cache line, a vector
  static constexpr std::uint64_t round_up(std::uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Which end of a larger free chunk to cut from. Long-lived extents grow from one end, the rest from the other.
  enum class Side { kLow, kHigh };

  struct Piece {
    std::uint64_t offset = 0;
    std::uint32_t chunk = 0;  // for give()
  };
  struct Chunk {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    bool used = false;
    std::uint64_t owner = 0;  // as given to take()
  };

  // `capacity` is rounded down to kAlignment. `unit_bytes`: what free_units() counts; 0: nothing.
  explicit OffsetAllocator(std::uint64_t capacity, std::uint64_t unit_bytes = 0);

  // At least `bytes` > 0, rounded up to kAlignment.
  std::optional<Piece> take(std::uint64_t bytes, Side side, std::uint64_t owner);
  void give(std::uint32_t chunk);

  // For a new allocator: these ranges are in use already. Aligned, in ascending order, apart from each other and inside
  // the capacity. The number of each one's chunk.
  struct Range {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t owner = 0;
  };
  std::vector<std::uint32_t> restore(std::span<const Range> ranges);

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t free_bytes() const { return free_bytes_; }
  // Pieces of unit_bytes that could be taken now.
  std::uint64_t free_units() const { return free_units_; }

  // Chunks in address order.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t first_chunk() const { return first_; }
  std::uint32_t next_chunk(std::uint32_t chunk) const { return nodes_[chunk].next; }
  Chunk chunk(std::uint32_t chunk) const;

 private:
  struct Node {
    std::uint64_t offset = 0, bytes = 0, owner = 0;
    std::uint32_t previous = kNone, next = kNone;          // neighbours by address
    std::uint32_t bin_previous = kNone, bin_next = kNone;  // in its bin, while free
    bool used = false;
  };
  static constexpr std::size_t kBins = 384;

  static std::size_t bin_of(std::uint64_t bytes);
  std::uint32_t find_fit(std::uint64_t bytes) const;
  std::size_t first_bin_from(std::size_t bin) const;
  std::uint32_t new_node();
  void add_to_bin(std::uint32_t node);
  void take_from_bin(std::uint32_t node);
  // Cuts `bytes` off the given end of a used node; what is left becomes a free chunk beside it.
  void give_rest(std::uint32_t node, std::uint64_t bytes, Side side);
  void absorb_next(std::uint32_t node);

  std::uint64_t capacity_;
  std::uint64_t unit_bytes_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t free_units_ = 0;
  std::uint32_t first_ = kNone;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> spare_nodes_;
  std::array<std::uint32_t, kBins> bins_;
  std::array<std::uint64_t, kBins / 64> bins_in_use_{};
};

}  // namespace nmc::store
