// The evicting half of MasterCore: which object goes, how it goes, and what the counters say.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace nmc::store {

std::uint64_t MasterCore::ticks_ago_locked(Nanos ago) const {
  const std::uint64_t ticks = TouchClock::ticks_of(ago), now = clock_.ticks();
  return ticks < now ? now - ticks : 0;
}

std::optional<MasterCore::Victim> MasterCore::find_victim_locked(const Scope& scope) {
  ++counters_.evict_attempts;
  end_soft_pins_locked();
  for (;;) {
    if (const auto victim = oldest_unpinned_locked(scope, false)) return victim;
    if (options_.evict_soft_pinned) {
      if (const auto victim = oldest_unpinned_locked(scope, true)) return victim;
    }
    if (observer_ == nullptr || !observer_->relieve()) {
      ++counters_.evict_failures;
      return std::nullopt;
    }
  }
}

// Readers touch their own pin words, not our order; so the oldest by our books gets a second look. A later use, or a
// pin, moves it up and the next one is looked at. Two looks at each settle it: from then on uses during the search are
// not seen, so that busy readers can't keep us from an end.
// What is soft-pinned counts only if `soft_too`.
std::optional<MasterCore::Victim> MasterCore::oldest_unpinned_locked(const Scope& scope, bool soft_too) {
  std::vector<LruPolicy*> orders;
  std::size_t candidates = 0;
  for (const std::uint16_t number : scope.segments) {
    for (std::size_t i = 0; i <= kSoftOrder; ++i) {
      if (i < kSoftOrder ? (scope.classes >> i & 1) == 0 : !soft_too) continue;
      LruPolicy& order = segments_[number]->orders[i];
      if (order.size() == 0) continue;
      orders.push_back(&order);
      candidates += order.size();
    }
  }
  for (std::size_t looks = 0; looks < 3 * candidates; ++looks) {
    std::optional<EvictionPolicy::Candidate> oldest;
    LruPolicy* its_order = nullptr;
    for (LruPolicy* order : orders) {
      const auto candidate = order->victim();
      if (!candidate || (oldest && oldest->stamp <= candidate->stamp)) continue;
      oldest = candidate;
      its_order = order;
    }
    if (!oldest) return std::nullopt;
    const std::uint32_t entry = oldest->id;
    const std::uint64_t used = last_use_locked(entry);
    if (used > oldest->stamp && looks < 2 * candidates) {
      its_order->touch(entry, used);
    } else if (clients_.user_pins(entry) + clients_.lender_pins(entry) > 0) {
      its_order->touch(entry, clock_.stamp());
      ++counters_.evict_skipped_pinned;
    } else {
      return Victim{entry, holdings_[entry].object_class};
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> MasterCore::stamp_if_evictable_locked(std::uint32_t entry) {
  const Holding& holding = holdings_[entry];
  if (holding.state != EntryState::kCommitted || holding.order == kNoOrder) return std::nullopt;
  if (clients_.user_pins(entry) + clients_.lender_pins(entry) > 0) return std::nullopt;
  const std::uint64_t used = std::max(last_use_locked(entry), segment_of(entry).orders[holding.order].stamp_of(entry));
  if (holding.order != kSoftOrder) return used;
  return options_.evict_soft_pinned ? std::optional(UINT64_MAX) : std::nullopt;  // after all that isn't
}

// 0: it isn't soft-pinned.
std::uint64_t MasterCore::soft_until_locked(const Commit& commit, std::optional<std::uint32_t> replaced) {
  if (commit.soft_pin == SoftPin::kKeep) {
    const std::uint64_t until = replaced ? holdings_[*replaced].soft_until : 0;
    return until != 0 && until > clock_.exact_ticks() ? until : 0;
  }
  const Nanos asked = commit.soft_pin_lifetime.value_or(options_.soft_pin_lifetime);
  if (commit.soft_pin == SoftPin::kDrop || asked <= Nanos{0}) return 0;
  return clock_.exact_ticks() + TouchClock::ticks_of(std::min(asked, options_.soft_pin_lifetime_max));
}

// What was soft-pinned long enough is evicted by its last use, like any other, from here on.
void MasterCore::end_soft_pins_locked() {
  if (soft_ends_.size() == 0) return;
  const std::uint64_t now = clock_.exact_ticks();
  for (auto first = soft_ends_.victim(); first && first->stamp <= now; first = soft_ends_.victim()) {
    const std::uint32_t entry = first->id;
    auto& orders = segment_of(entry).orders;
    const std::uint64_t stamp = orders[kSoftOrder].stamp_of(entry);
    soft_ends_.erase(entry);
    orders[kSoftOrder].erase(entry);
    EntryMeta meta = index_.meta(entry);
    meta.flags &= static_cast<std::uint8_t>(~kSoftPinned);
    index_.set_meta(entry, meta);
    holdings_[entry].soft_until = 0;
    holdings_[entry].order = order_for_locked(entry);
    orders[holdings_[entry].order].insert(entry, stamp);
  }
}

void MasterCore::evict_locked(std::uint32_t entry) {
  ++counters_.evicted_objects;
  counters_.evicted_bytes += index_.extent(entry).bytes;
  retire_locked(entry);
}

// Takes a committed object out of sight, all copies of it. Their space is free at once, or with its last pin.
void MasterCore::retire_locked(std::uint32_t number) {
  const std::vector<std::uint32_t> copies = copies_of_locked(number);
  kill_locked(number);
  for (const std::uint32_t copy : copies) kill_locked(copy);
}

void MasterCore::kill_locked(std::uint32_t number) {
  NMC_ASSERT(holdings_[number].state == EntryState::kCommitted, "entry={}", number);
  Pins::begin_dying(index_.entry(number).commit);
  if (holdings_[number].listed)
    unlist_locked(number);
  else
    forget_hidden_locked(number);
  bury_locked(number);
}

// What turned DYING and isn't listed any more.
void MasterCore::bury_locked(std::uint32_t number) {
  Holding& holding = holdings_[number];
  holding.state = EntryState::kDying;
  if (Pins::may_free(clients_.words_of(number))) {
    free_locked(number);
    return;
  }
  limbo_.push_back(number);
  counters_.limbo_bytes += holding.placed.place.bytes;
}

void MasterCore::free_locked(std::uint32_t entry) {
  Holding& holding = holdings_[entry];
  const Placed placed = holding.placed;
  if (holding.object_class == ObjectClass::kTail) tail_bytes_ -= placed.place.bytes;
  SegmentSpace& space = segments_[placed.segment]->space;
  space.give(placed.place);
  if (holding.key) space.give(*holding.key);
  holding = Holding{};
  Pins::set_free(index_.entry(entry).commit);
  index_.give_entry(entry);
  leave_segment_locked(placed.segment);
}

// Frees what is no longer pinned; true when anything was. Also counts what each client keeps dying, and holds it to the
// cap.
bool MasterCore::sweep_limbo_locked() {
  std::size_t kept = 0;
  for (auto& client : clients_.all()) client->limbo_bytes = 0;
  for (const std::uint32_t entry : limbo_) {
    const std::uint64_t bytes = holdings_[entry].placed.place.bytes;
    if (Pins::may_free(clients_.words_of(entry))) {
      counters_.limbo_bytes -= bytes;
      free_locked(entry);
      continue;
    }
    limbo_[kept++] = entry;
    for (auto& client : clients_.all()) {
      if (pin_count_of(client->table.word(entry).load(std::memory_order_relaxed)) > 0) client->limbo_bytes += bytes;
    }
  }
  const bool freed = kept < limbo_.size();
  limbo_.resize(kept);
  for (auto& client : clients_.all()) {
    const bool over = limbo_cap_ > 0 && client->table.client() != limbo_exempt_ && client->limbo_bytes > limbo_cap_;
    SharedWord& told = client->table.header().over_limbo_cap;  // read with each lookup: left alone where it is right
    if (told.load(std::memory_order_relaxed) != (over ? 1 : 0)) told.store(over ? 1 : 0, std::memory_order_relaxed);
  }
  return freed;
}

void MasterCore::set_limbo_cap(std::uint64_t bytes_per_client, std::uint32_t exempt_client) {
  MutexLock lock(mutex_);
  limbo_cap_ = bytes_per_client;
  limbo_exempt_ = exempt_client;
}

std::uint64_t MasterCore::limbo_bytes_of(std::uint32_t client) {
  MutexLock lock(mutex_);
  sweep_limbo_locked();
  for (const auto& known : clients_.all()) {
    if (known->table.client() == client) return known->limbo_bytes;
  }
  return 0;
}

void MasterCore::fill_stats(StoreStats& stats) {
  MutexLock lock(mutex_);
  fill_counters_locked(stats);
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    const Holding& holding = holdings_[entry];
    if (holding.state != EntryState::kCommitted && holding.state != EntryState::kDying) continue;
    const std::uint64_t pins = clients_.user_pins(entry);
    stats.pins += pins;
    if (pins > 0 && holding.state == EntryState::kCommitted && holding.object_class == ObjectClass::kBlock) {
      ++stats.blocks_pinned;
    }
  }
}

void MasterCore::fill_counters(StoreStats& stats) {
  MutexLock lock(mutex_);
  fill_counters_locked(stats);
}

void MasterCore::fill_counters_locked(StoreStats& stats) {
  sweep_limbo_locked();
  end_soft_pins_locked();
  stats = counters_;
  for (const auto& segment : segments_) {
    if (segment == nullptr) continue;
    stats.used_bytes += segment->space.used_bytes();
    stats.soft_pinned += segment->orders[kSoftOrder].size();
    if (segment->state != SegmentState::kMounted) continue;
    stats.segment_bytes += segment->space.capacity();
    stats.blocks_total += segment->space.blocks_total();
  }
  stats.tail_bytes = tail_bytes_;
  stats.hits = clients_.past_hits();
  stats.misses = clients_.past_misses();
  for (const auto& client : clients_.all()) {
    stats.hits += client->table.hits();
    stats.misses += client->table.misses();
  }
  stats.index_entries = index_.view().entries_ready();
  stats.index_entries_used = index_.entries_in_use();
  stats.index_rebuilds = index_.flips();
  stats.lookups = stats.hits + stats.misses;
}

}  // namespace nmc::store
