// Byte-pair merging of one piece of text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/prefix.h"
#include "model/tokenizer_file.h"

namespace nmc::model {

// Immutable, thread-safe; callers bring their scratch.
class BpeMerger {
 public:
  // A rule's rank is its place in `rules`, or that of `ranks` if there are as many. The lowest rank goes first, among
  // equals the leftmost place.
  explicit BpeMerger(std::span<const MergeRule> rules, std::span<const std::uint32_t> ranks = {});

  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t at = 0;  // index of the left symbol
    kv::TokenId joined = 0;
    // For a heap with the best on top.
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  struct Symbol {
    kv::TokenId id = 0;
    std::uint32_t before = 0;
    std::uint32_t after = 0;  // kNone at the end
    bool is_merged = false;   // into the symbol before it
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Merges `ids` (fewer than 2^32 - 1) until no rule applies, appending what is left to `out`: O(n log n). Rules join
  // what their tokens' texts join to.
  void merge(std::span<const kv::TokenId> ids, Scratch& scratch, std::vector<kv::TokenId>& out) const;

 private:
  struct Slot {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = 0;
    kv::TokenId joined = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kFew = 32;  // up to so many symbols looking at all beats keeping order

  std::size_t slot_of(std::uint64_t pair) const;
  const Slot* find(kv::TokenId left, kv::TokenId right) const;
  void consider(std::uint32_t left, Scratch& scratch) const;
  void merge_few(std::span<const kv::TokenId> ids, std::vector<kv::TokenId>& out) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace nmc::model
