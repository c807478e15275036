// The evicting half of MasterCore: which object goes, how it goes, and what the counters say.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace nmc::store {

EvictionPolicy& MasterCore::order_of(ObjectClass object_class) {
  return orders_[static_cast<std::size_t>(object_class)];
}

std::optional<MasterCore::Victim> MasterCore::find_victim_locked(unsigned classes) {
  for (;;) {
    if (const auto victim = oldest_unpinned_locked(classes)) return victim;
    if (observer_ == nullptr || !observer_->relieve()) return std::nullopt;
  }
}

// Readers touch their own pin words, not our order; so the oldest by our books gets a second look. A later use, or a
// pin, moves it up and the next one is looked at. Two looks at each settle it: from then on uses during the search are
// not seen, so that busy readers can't keep us from an end.
std::optional<MasterCore::Victim> MasterCore::oldest_unpinned_locked(unsigned classes) {
  std::size_t candidates = 0;
  for (std::size_t i = 0; i < kClasses; ++i) candidates += (classes >> i & 1) != 0 ? orders_[i].size() : 0;
  for (std::size_t looks = 0; looks < 3 * candidates; ++looks) {
    std::optional<EvictionPolicy::Candidate> oldest;
    std::size_t oldest_class = 0;
    for (std::size_t i = 0; i < kClasses; ++i) {
      const auto candidate = (classes >> i & 1) != 0 ? orders_[i].victim() : std::nullopt;
      if (!candidate || (oldest && oldest->stamp <= candidate->stamp)) continue;
      oldest = candidate;
      oldest_class = i;
    }
    const std::uint32_t entry = oldest->id;
    const std::uint64_t now = clock_.ticks();
    const std::uint64_t touched =
        clients_.newest_touch(entry, generation_of(index_.entry(entry).commit.load(std::memory_order_relaxed)), now);
    if (touched > oldest->stamp && looks < 2 * candidates) {
      orders_[oldest_class].touch(entry, touched);
    } else if (clients_.user_pins(entry) + clients_.lender_pins(entry) > 0) {
      orders_[oldest_class].touch(entry, clock_.stamp());
      ++counters_.evict_skipped_pinned;
    } else {
      return Victim{entry, static_cast<ObjectClass>(oldest_class)};
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> MasterCore::stamp_if_evictable_locked(std::uint32_t entry) {
  const Holding& holding = holdings_[entry];
  if (holding.state != EntryState::kCommitted) return std::nullopt;
  if (clients_.user_pins(entry) + clients_.lender_pins(entry) > 0) return std::nullopt;
  const std::uint64_t touched = clients_.newest_touch(
      entry, generation_of(index_.entry(entry).commit.load(std::memory_order_relaxed)), clock_.ticks());
  return std::max(touched, order_of(holding.object_class).stamp_of(entry));
}

void MasterCore::evict_locked(std::uint32_t entry) {
  ++counters_.evicted_objects;
  counters_.evicted_bytes += index_.entry(entry).size.load(std::memory_order_relaxed);
  retire_locked(entry);
}

// Takes a committed object out of sight. Its space is free at once, or with its last pin.
void MasterCore::retire_locked(std::uint32_t number) {
  IndexEntry& entry = index_.entry(number);
  Holding& holding = holdings_[number];
  NMC_ASSERT(holding.state == EntryState::kCommitted, "entry={}", number);
  Pins::begin_dying(entry.commit);
  index_.drop_slot(entry.key_hash.load(std::memory_order_relaxed), number);
  holding.state = EntryState::kDying;
  order_of(holding.object_class).erase(number);
  --counters_.objects;
  if (holding.object_class == ObjectClass::kBlock) --counters_.blocks_cached;
  if (Pins::may_free(clients_.words_of(number))) {
    free_locked(number);
    return;
  }
  limbo_.push_back(number);
  counters_.limbo_bytes += holding.place.bytes;
}

void MasterCore::free_locked(std::uint32_t entry) {
  Holding& holding = holdings_[entry];
  if (holding.object_class == ObjectClass::kTail) tail_bytes_ -= holding.place.bytes;
  space_.give(holding.place);
  if (holding.key) space_.give(*holding.key);
  holding = Holding{};
  Pins::set_free(index_.entry(entry).commit);
  index_.give_entry(entry);
}

// Frees what is no longer pinned; true when anything was. Also counts what each client keeps dying, and holds it to the
// cap.
bool MasterCore::sweep_limbo_locked() {
  std::size_t kept = 0;
  for (auto& client : clients_.all()) client->limbo_bytes = 0;
  for (const std::uint32_t entry : limbo_) {
    const std::uint64_t bytes = holdings_[entry].place.bytes;
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
    client->table.header().over_limbo_cap.store(over ? 1 : 0, std::memory_order_relaxed);
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
  sweep_limbo_locked();
  stats = counters_;
  stats.segment_bytes = space_.capacity();
  stats.used_bytes = space_.used_bytes();
  stats.tail_bytes = tail_bytes_;
  stats.blocks_total = space_.blocks_total();
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    const Holding& holding = holdings_[entry];
    if (holding.state != EntryState::kCommitted && holding.state != EntryState::kDying) continue;
    const std::uint64_t pins = clients_.user_pins(entry);
    stats.pins += pins;
    if (pins > 0 && holding.state == EntryState::kCommitted && holding.object_class == ObjectClass::kBlock) {
      ++stats.blocks_pinned;
    }
  }
  stats.hits = clients_.past_hits();
  stats.misses = clients_.past_misses();
  for (const auto& client : clients_.all()) {
    stats.hits += client->table.header().hits.load(std::memory_order_relaxed);
    stats.misses += client->table.header().misses.load(std::memory_order_relaxed);
  }
  stats.index_entries = index_.view().entry_count();
  stats.index_entries_used = index_.entries_in_use();
  stats.index_rebuilds = index_.flips();
  stats.lookups = stats.hits + stats.misses;
}

}  // namespace nmc::store
