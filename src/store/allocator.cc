#include "store/allocator.h"

#include <bit>

#include "base/check.h"

namespace nmc::store {

OffsetAllocator::OffsetAllocator(std::uint64_t capacity, std::uint64_t unit_bytes)
    : capacity_(capacity / kAlignment * kAlignment), unit_bytes_(round_up(unit_bytes)) {
  bins_.fill(kNone);
  if (capacity_ == 0) return;
  first_ = new_node();
  nodes_[first_].bytes = capacity_;
  add_to_bin(first_);
}

// Sizes below 8 units have a bin each; above, eight bins share a power of two.
std::size_t OffsetAllocator::bin_of(std::uint64_t bytes) {
  const std::uint64_t units = bytes / kAlignment;
  if (units < 8) return units;
  const int exponent = std::bit_width(units) - 1;
  return static_cast<std::size_t>(exponent - 2) * 8 + (units >> (exponent - 3) & 7);
}

std::size_t OffsetAllocator::first_bin_from(std::size_t bin) const {
  if (bin >= kBins) return kBins;
  std::size_t word = bin / 64;
  std::uint64_t bits = bins_in_use_[word] & ~std::uint64_t{0} << (bin % 64);
  while (bits == 0) {
    if (++word == bins_in_use_.size()) return kBins;
    bits = bins_in_use_[word];
  }
  return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
}

std::uint32_t OffsetAllocator::find_fit(std::uint64_t bytes) const {
  const std::size_t own = bin_of(bytes);
  // Everything in a later bin fits; in the own bin only some may.
  const std::size_t later = first_bin_from(own + 1);
  std::uint32_t node = bins_[own];
  if (later != kBins && (node == kNone || nodes_[node].bytes < bytes)) return bins_[later];
  while (node != kNone && nodes_[node].bytes < bytes) node = nodes_[node].bin_next;
  return node;
}

std::optional<OffsetAllocator::Piece> OffsetAllocator::take(std::uint64_t bytes, Side side, std::uint64_t owner) {
  NMC_REQUIRE(bytes > 0);
  if (bytes > free_bytes_) return std::nullopt;
  bytes = round_up(bytes);
  const std::uint32_t node = find_fit(bytes);
  if (node == kNone) return std::nullopt;
  take_from_bin(node);
  nodes_[node].used = true;
  nodes_[node].owner = owner;
  if (nodes_[node].bytes > bytes) give_rest(node, bytes, side);
  return Piece{nodes_[node].offset, node};
}

std::vector<std::uint32_t> OffsetAllocator::restore(std::span<const Range> ranges) {
  NMC_REQUIRE(free_bytes_ == capacity_);
  std::vector<std::uint32_t> chunks;
  chunks.reserve(ranges.size());
  std::uint32_t last = first_;  // the free chunk after all that was restored
  for (const Range& range : ranges) {
    NMC_REQUIRE(last != kNone && range.bytes > 0 && range.offset % kAlignment == 0 && range.bytes % kAlignment == 0 &&
                    range.offset >= nodes_[last].offset && range.bytes <= capacity_ - range.offset,
                "offset={} bytes={}", range.offset, range.bytes);
    take_from_bin(last);
    nodes_[last].used = true;
    nodes_[last].owner = range.owner;
    const std::uint64_t before = range.offset - nodes_[last].offset;
    if (before > 0) give_rest(last, nodes_[last].bytes - before, Side::kHigh);
    if (nodes_[last].bytes > range.bytes) give_rest(last, range.bytes, Side::kLow);
    chunks.push_back(last);
    last = nodes_[last].next;
  }
  return chunks;
}

void OffsetAllocator::give_rest(std::uint32_t node, std::uint64_t bytes, Side side) {
  const std::uint32_t rest = new_node();
  Node& kept = nodes_[node];
  Node& left = nodes_[rest];
  left.bytes = kept.bytes - bytes;
  kept.bytes = bytes;
  if (side == Side::kLow) {
    left.offset = kept.offset + bytes;
    left.previous = node;
    left.next = kept.next;
    kept.next = rest;
    if (left.next != kNone) nodes_[left.next].previous = rest;
  } else {
    left.offset = kept.offset;
    kept.offset += left.bytes;
    left.next = node;
    left.previous = kept.previous;
    kept.previous = rest;
    (left.previous == kNone ? first_ : nodes_[left.previous].next) = rest;
  }
  add_to_bin(rest);
}

void OffsetAllocator::give(std::uint32_t chunk) {
  NMC_REQUIRE(chunk < nodes_.size() && nodes_[chunk].used, "chunk={}", chunk);
  nodes_[chunk].used = false;
  const std::uint32_t next = nodes_[chunk].next;
  if (next != kNone && !nodes_[next].used) {
    take_from_bin(next);
    absorb_next(chunk);
  }
  const std::uint32_t previous = nodes_[chunk].previous;
  if (previous != kNone && !nodes_[previous].used) {
    take_from_bin(previous);
    absorb_next(previous);
    chunk = previous;
  }
  add_to_bin(chunk);
}

void OffsetAllocator::absorb_next(std::uint32_t node) {
  const std::uint32_t gone = nodes_[node].next;
  nodes_[node].bytes += nodes_[gone].bytes;
  nodes_[node].next = nodes_[gone].next;
  if (nodes_[node].next != kNone) nodes_[nodes_[node].next].previous = node;
  nodes_[gone] = Node{};
  spare_nodes_.push_back(gone);
}

OffsetAllocator::Chunk OffsetAllocator::chunk(std::uint32_t chunk) const {
  const Node& node = nodes_[chunk];
  return {node.offset, node.bytes, node.used, node.owner};
}

std::uint32_t OffsetAllocator::new_node() {
  if (spare_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = spare_nodes_.back();
  spare_nodes_.pop_back();
  return node;
}

void OffsetAllocator::add_to_bin(std::uint32_t node) {
  const std::size_t bin = bin_of(nodes_[node].bytes);
  nodes_[node].bin_previous = kNone;
  nodes_[node].bin_next = bins_[bin];
  if (bins_[bin] != kNone) nodes_[bins_[bin]].bin_previous = node;
  bins_[bin] = node;
  bins_in_use_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  free_bytes_ += nodes_[node].bytes;
  if (unit_bytes_ > 0) free_units_ += nodes_[node].bytes / unit_bytes_;
}

void OffsetAllocator::take_from_bin(std::uint32_t node) {
  const Node& taken = nodes_[node];
  const std::size_t bin = bin_of(taken.bytes);
  (taken.bin_previous == kNone ? bins_[bin] : nodes_[taken.bin_previous].bin_next) = taken.bin_next;
  if (taken.bin_next != kNone) nodes_[taken.bin_next].bin_previous = taken.bin_previous;
  if (bins_[bin] == kNone) bins_in_use_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  free_bytes_ -= taken.bytes;
  if (unit_bytes_ > 0) free_units_ -= taken.bytes / unit_bytes_;
}

}  // namespace nmc::store
