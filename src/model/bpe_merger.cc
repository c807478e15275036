#include "model/bpe_merger.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace nmc::model {
namespace {

std::uint64_t pair_of(kv::TokenId left, kv::TokenId right) { return std::uint64_t{left} << 32 | right; }

}  // namespace

BpeMerger::BpeMerger(std::span<const MergeRule> rules, std::span<const std::uint32_t> ranks)
    : slots_(std::bit_ceil(2 * rules.size() + 2)) {
  NMC_REQUIRE(ranks.empty() || ranks.size() == rules.size());
  for (std::uint32_t i = 0; i < rules.size(); ++i) {
    const std::uint64_t pair = pair_of(rules[i].left, rules[i].right);
    NMC_REQUIRE(pair != kNoPair);
    // A pair that is listed twice has its later rank, as in the Python package.
    slots_[slot_of(pair)] = {pair, ranks.empty() ? i : ranks[i], rules[i].joined};
  }
}

// The slot that holds `pair`, or the free one where it belongs.
std::size_t BpeMerger::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  std::size_t slot = (hash ^ (hash >> 32)) & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

const BpeMerger::Slot* BpeMerger::find(kv::TokenId left, kv::TokenId right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kNoPair ? nullptr : &slot;
}

void BpeMerger::consider(std::uint32_t left, Scratch& scratch) const {
  const Symbol& symbol = scratch.symbols[left];
  if (symbol.after == kNone) return;
  const Slot* slot = find(symbol.id, scratch.symbols[symbol.after].id);
  if (slot == nullptr) return;
  scratch.heap.push_back({slot->rank, left, slot->joined});
  std::push_heap(scratch.heap.begin(), scratch.heap.end());
}

// The definition itself: apply the best rule at its leftmost place, until none applies.
void BpeMerger::merge_few(std::span<const kv::TokenId> ids, std::vector<kv::TokenId>& out) const {
  std::array<kv::TokenId, kFew> symbols;
  std::array<const Slot*, kFew> rules;  // of a symbol with the next one, nullptr if there is none
  std::size_t count = ids.size();
  std::ranges::copy(ids, symbols.begin());
  for (std::size_t i = 0; i + 1 < count; ++i) rules[i] = find(symbols[i], symbols[i + 1]);
  for (;;) {
    const Slot* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (rules[i] == nullptr || (best != nullptr && rules[i]->rank >= best->rank)) continue;
      best = rules[i];
      at = i;
    }
    if (best == nullptr) break;
    symbols[at] = best->joined;
    std::copy(symbols.begin() + at + 2, symbols.begin() + count, symbols.begin() + at + 1);
    std::copy(rules.begin() + at + 1, rules.begin() + count - 1, rules.begin() + at);
    --count;
    if (at > 0) rules[at - 1] = find(symbols[at - 1], symbols[at]);
    if (at + 1 < count) rules[at] = find(symbols[at], symbols[at + 1]);
  }
  out.insert(out.end(), symbols.begin(), symbols.begin() + count);
}

void BpeMerger::merge(std::span<const kv::TokenId> ids, Scratch& scratch, std::vector<kv::TokenId>& out) const {
  NMC_REQUIRE(ids.size() < kNone, "{} symbols", ids.size());
  if (ids.size() <= kFew) {
    merge_few(ids, out);
    return;
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    symbols.push_back({ids[i], i == 0 ? kNone : i - 1, i + 1 < ids.size() ? i + 1 : kNone, false});
  }
  for (std::uint32_t i = 0; i < ids.size(); ++i) consider(i, scratch);

  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end());
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    Symbol& left = symbols[best.at];
    if (left.is_merged || left.after == kNone) continue;
    // The symbols may have changed since; what counts, as in the Python package, is that they still join to the same
    // token.
    const Slot* slot = find(left.id, symbols[left.after].id);
    if (slot == nullptr || slot->joined != best.joined) continue;
    Symbol& right = symbols[left.after];
    right.is_merged = true;
    left.id = best.joined;
    left.after = right.after;
    if (left.after != kNone) symbols[left.after].before = best.at;
    if (left.before != kNone) consider(left.before, scratch);
    consider(best.at, scratch);
  }
  for (const Symbol& symbol : symbols) {
    if (!symbol.is_merged) out.push_back(symbol.id);
  }
}

}  // namespace nmc::model
