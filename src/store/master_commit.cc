// The committing half of MasterCore: how a reservation becomes an object under a key, and how a key loses it.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "store/master_core.h"

namespace nmc::store {

Result<MasterCore::Held> MasterCore::commit(const Commit& commit) {
  MutexLock lock(mutex_);
  const std::uint32_t number = commit.entry;
  if (!is_reservation_locked(number, commit.generation, commit.client))
    return permission_denied("store: no reservation {} of generation {} is the caller's", number, commit.generation);
  IndexEntry& entry = index_.entry(number);
  if (auto injected = failpoint("store.commit")) return Failure(*std::move(injected));
  if (commit.key.empty() || commit.key.size() > kKeyBytesMax) {
    return invalid_argument("store: a key of {} bytes, expected 1 to {}", commit.key.size(), kKeyBytesMax);
  }
  if (segment_of(number).state != SegmentState::kMounted)
    return unavailable("store: segment {} was unmounted", segment_of(number).name);
  if (options_.reservation_lifetime != Nanos{0} && !holdings_[number].held_by_pin &&
      holdings_[number].reserved_at < ticks_ago_locked(options_.reservation_lifetime)) {
    return permission_denied("store: reservation {} was to be committed within {} s", number,
                             options_.reservation_lifetime / std::chrono::seconds(1));
  }
  if (commit.restore_cancelled != nullptr && commit.restore_cancelled->load(std::memory_order_relaxed)) {
    return cancelled("store: removed while it was restored");
  }
  const std::uint64_t hash = checksum64(commit.key);
  if (const auto winner = find_locked(commit.key, hash); winner && !commit.replace) {
    if (commit.keep_if_taken) return already_exists("store: the key is taken");
    Held held{*winner, generation_of(index_.entry(*winner).commit.load(std::memory_order_relaxed))};
    if (commit.pin_for != nullptr && !pin_locked(commit.key, hash, *commit.pin_for, commit.stamp))
      return resource_exhausted("store: an object has the most pins that one client can hold");
    abort_locked(number);
    for (const Held& copy : commit.copies) {
      if (is_reservation_locked(copy.entry, copy.generation, commit.client)) abort_locked(copy.entry);
    }
    ++counters_.commit_duplicates;
    return held;
  }
  NMC_RETURN_IF_ERROR(write_names_locked(number, commit, hash));
  // Looked up after the key has its room, which may have cost an object.
  const auto replaced = find_locked(commit.key, hash);

  Holding& holding = holdings_[number];
  EntryMeta meta = {.object_class = static_cast<std::uint8_t>(holding.object_class)};
  holding.soft_until = soft_until_locked(commit, replaced);
  if (holding.soft_until != 0) meta.flags |= kSoftPinned;
  if (commit.hard_pin) meta.flags |= kHardPinned;
  index_.set_meta(number, meta);
  link_copies_locked(number, commit_copies_locked(commit, hash, meta));
  if (replaced) {
    Pins::publish(entry.commit);
    hand_over_locked(*replaced, number, commit.stamp);
  } else {
    // The slot first: who sees the object committed must find it.
    list_locked(number, commit.stamp);
    Pins::publish(entry.commit);
  }
  if (commit.pin_for != nullptr) {
    const std::uint64_t committed = entry.commit.load(std::memory_order_relaxed);
    NMC_ASSERT(Pins::pin(entry.commit, committed, commit.pin_for->word(number), commit.stamp), "entry={}", number);
  }
  holding.state = EntryState::kCommitted;
  --counters_.reservations;
  ++counters_.commits;
  if (holding.object_class == ObjectClass::kBlock) --counters_.blocks_reserved;
  if (replaced) retire_locked(*replaced);
  drop_hidden_locked(commit.key, hash);
  if (observer_ != nullptr && commit.restore_cancelled == nullptr) {
    observer_->on_commit(number, commit.generation, holding.object_class, commit.key);
  }
  return Held{number, commit.generation};
}

// ---- copies ----

std::vector<std::uint32_t> MasterCore::commit_copies_locked(const Commit& commit, std::uint64_t hash, EntryMeta meta) {
  std::vector<std::uint32_t> copies;
  for (const Held& copy : commit.copies) {
    if (!is_reservation_locked(copy.entry, copy.generation, commit.client)) continue;
    if (segment_of(copy.entry).state != SegmentState::kMounted || !write_names_locked(copy.entry, commit, hash)) {
      abort_locked(copy.entry);
      continue;
    }
    meta.flags |= kReplica;
    index_.set_meta(copy.entry, meta);
    Pins::publish(index_.entry(copy.entry).commit);
    holdings_[copy.entry].state = EntryState::kCommitted;
    holdings_[copy.entry].order = kNoOrder;
    holdings_[copy.entry].soft_until = holdings_[commit.entry].soft_until;
    --counters_.reservations;
    copies.push_back(copy.entry);
  }
  return copies;
}

// Makes these the copies of `first`, in our books and, for the next master, in the index.
void MasterCore::link_copies_locked(std::uint32_t first, std::span<const std::uint32_t> copies) {
  std::uint32_t before = first;
  const auto link = [&](std::uint32_t from, std::uint32_t to) NMC_NO_THREAD_SAFETY {
    holdings_[from].next_copy = to;
    EntryMeta meta = index_.meta(from);
    meta.next_replica = to == kNoEntry ? 0 : to + 1;
    index_.set_meta(from, meta);
  };
  for (const std::uint32_t copy : copies) {
    link(before, copy);
    holdings_[copy].first_copy = first;
    before = copy;
  }
  link(before, kNoEntry);
}

std::vector<std::uint32_t> MasterCore::copies_of_locked(std::uint32_t first) {
  std::vector<std::uint32_t> copies;
  for (std::uint32_t copy = holdings_[first].next_copy; copy != kNoEntry; copy = holdings_[copy].next_copy)
    copies.push_back(copy);
  return copies;
}

// In its slot, so that a probe finds one or the other. Both are committed under the same key.
void MasterCore::hand_over_locked(std::uint32_t from, std::uint32_t to, std::uint64_t stamp) {
  index_.move_slot(index_.key_hash(from), from, to);
  mark_unlisted_locked(from);
  mark_listed_locked(to, stamp);
}

// Where the first copy goes, the next one is found in its place.
void MasterCore::promote_copy_locked(std::uint32_t first) {
  const std::vector<std::uint32_t> copies = copies_of_locked(first);
  link_copies_locked(first, {});
  if (copies.empty()) return;
  const std::uint32_t next = copies[0];
  EntryMeta meta = index_.meta(next);
  meta.flags &= static_cast<std::uint8_t>(~kReplica);
  index_.set_meta(next, meta);
  holdings_[next].first_copy = kNoEntry;
  link_copies_locked(next, std::span(copies).subspan(1));
  hand_over_locked(first, next, last_use_locked(first));
}

void MasterCore::drop_copy_locked(std::uint32_t copy) {
  const std::uint32_t first = holdings_[copy].first_copy;
  std::vector<std::uint32_t> others = copies_of_locked(first);
  std::erase(others, copy);
  link_copies_locked(first, others);
  kill_locked(copy);
}

std::uint8_t MasterCore::order_for_locked(std::uint32_t number) {
  const std::uint8_t flags = index_.meta(number).flags;
  if ((flags & kHardPinned) != 0) return kNoOrder;
  if ((flags & kSoftPinned) != 0) return kSoftOrder;
  return static_cast<std::uint8_t>(holdings_[number].object_class);
}

// To be found, counted and evicted from here on.
void MasterCore::list_locked(std::uint32_t number, std::uint64_t stamp) {
  index_.add_slot(index_.key_hash(number), number);
  mark_listed_locked(number, stamp);
}

void MasterCore::mark_listed_locked(std::uint32_t number, std::uint64_t stamp) {
  Holding& holding = holdings_[number];
  holding.listed = true;
  holding.order = order_for_locked(number);
  if (holding.order != kNoOrder) segment_of(number).orders[holding.order].insert(number, stamp);
  if (holding.order == kSoftOrder) {
    if (holding.soft_until == 0)  // of an earlier master, who knew
      holding.soft_until = clock_.exact_ticks() + TouchClock::ticks_of(options_.soft_pin_lifetime);
    soft_ends_.insert(number, holding.soft_until);
  }
  ++counters_.objects;
  if (holding.object_class == ObjectClass::kBlock) ++counters_.blocks_cached;
}

void MasterCore::unlist_locked(std::uint32_t number) {
  index_.drop_slot(index_.key_hash(number), number);
  mark_unlisted_locked(number);
}

void MasterCore::mark_unlisted_locked(std::uint32_t number) {
  Holding& holding = holdings_[number];
  holding.listed = false;
  if (holding.order != kNoOrder) segment_of(number).orders[holding.order].erase(number);
  if (holding.order == kSoftOrder) soft_ends_.erase(number);
  holding.order = kNoOrder;
  --counters_.objects;
  if (holding.object_class == ObjectClass::kBlock) --counters_.blocks_cached;
}

// ---- parked objects ----

void MasterCore::hide_locked(std::uint32_t number) { hidden_.emplace(index_.key_hash(number), number); }

void MasterCore::forget_hidden_locked(std::uint32_t number) {
  if (hidden_.empty()) return;
  const auto [begin, end] = hidden_.equal_range(index_.key_hash(number));
  const auto found = std::find_if(begin, end, [&](const auto& hidden) { return hidden.second == number; });
  if (found != end) hidden_.erase(found);
}

// What has come to an end while its owner was away must not come back with it.
void MasterCore::drop_hidden_locked(std::string_view key, std::uint64_t hash) {
  if (hidden_.empty()) return;
  std::vector<std::uint32_t> superseded;
  const auto [begin, end] = hidden_.equal_range(hash);
  for (auto hidden = begin; hidden != end; ++hidden) {
    if (key_equals_locked(hidden->second, key)) superseded.push_back(hidden->second);
  }
  for (const std::uint32_t entry : superseded) kill_locked(entry);
}

// ---- keys ----

// By what the entry is found, and its bytes are known. An error leaves it as it was.
Result<void> MasterCore::write_names_locked(std::uint32_t number, const Commit& commit, std::uint64_t hash) {
  const std::string_view key = commit.key;
  if (key.size() > kInlineKeyBytes) {
    const std::uint16_t segment = holdings_[number].placed.segment;
    NMC_ASSIGN_OR_RETURN(const Placed placed, place_bytes_locked(key.size(), number, std::span(&segment, 1)));
    const std::uint64_t offset = placed.place.offset;
    std::memcpy(segments_[segment]->segment.bytes(offset, key.size()).data(), key.data(), key.size());
    index_.entry(number).key[0].store(pack_location({segment, offset}), std::memory_order_release);
    holdings_[number].key = placed.place;
  } else {
    index_.write_key(number, key);
  }
  IndexEntryRest& rest = index_.rest(number);
  rest.key_hash.store(hash, std::memory_order_release);
  rest.checksum.store(commit.checksum.value_or(0), std::memory_order_release);
  index_.set_extent(number, {.bytes = index_.extent(number).bytes,
                             .has_checksum = commit.checksum.has_value(),
                             .key_bytes = static_cast<std::uint16_t>(key.size())});
  return {};
}

std::string MasterCore::key_of_locked(std::uint32_t number) {
  const std::size_t bytes = index_.extent(number).key_bytes;
  const std::optional<Place>& place = holdings_[number].key;
  if (!place) return index_.read_key(number, bytes);
  std::string key(bytes, 0);
  std::memcpy(key.data(), segment_of(number).segment.bytes(place->offset, bytes).data(), bytes);
  return key;
}

bool MasterCore::key_equals_locked(std::uint32_t number, std::string_view key) {
  if (!index_.view().may_hold(number, key, index_.key_hash(number))) return false;
  const std::optional<Place>& place = holdings_[number].key;
  return !place ||
         std::memcmp(segment_of(number).segment.bytes(place->offset, key.size()).data(), key.data(), key.size()) == 0;
}

std::optional<std::uint32_t> MasterCore::find_locked(std::string_view key, std::uint64_t hash) {
  std::optional<std::uint32_t> found;
  index_.view().probe(hash, [&](std::uint32_t number) NMC_NO_THREAD_SAFETY {
    if (holdings_[number].state != EntryState::kCommitted || !key_equals_locked(number, key)) return false;
    found = number;
    return true;
  });
  return found;
}

std::optional<MasterCore::Held> MasterCore::pin_locked(std::string_view key, std::uint64_t hash,
                                                       const PinTable& pin_for, std::uint64_t stamp) {
  const auto number = find_locked(key, hash);
  if (!number) return std::nullopt;
  const IndexEntry& entry = index_.entry(*number);
  const std::uint64_t seen = entry.commit.load(std::memory_order_relaxed);
  if (!Pins::pin(entry.commit, seen, pin_for.word(*number), stamp)) return std::nullopt;
  return Held{*number, generation_of(seen)};
}

std::optional<MasterCore::Held> MasterCore::pin(std::string_view key, const PinTable& pin_for, std::uint64_t stamp) {
  MutexLock lock(mutex_);
  return pin_locked(key, checksum64(key), pin_for, stamp);
}

// ---- removing ----

std::uint64_t MasterCore::last_use_locked(std::uint32_t entry) {
  const std::uint64_t generation = generation_of(index_.entry(entry).commit.load(std::memory_order_relaxed));
  return std::max(holdings_[entry].last_read, clients_.newest_touch(entry, generation, clock_.ticks()));
}

bool MasterCore::leased_locked(std::uint32_t entry) {
  if (options_.lease == Nanos{0}) return false;
  const std::uint64_t used = last_use_locked(entry), lease = TouchClock::ticks_of(options_.lease);
  // Exactly, so that who waits for the lease's time finds it over.
  const std::uint64_t now = clock_.exact_ticks();
  return used != 0 && used + lease > now;
}

MasterCore::Removal MasterCore::remove(std::string_view key, bool force) {
  MutexLock lock(mutex_);
  const auto number = find_locked(key, checksum64(key));
  if (number && !force && leased_locked(*number)) return Removal::kLeased;
  if (number) retire_locked(*number);
  drop_hidden_locked(key, checksum64(key));
  const bool below = observer_ != nullptr && observer_->on_remove(key);
  if (!number && !below) return Removal::kAbsent;
  ++counters_.removes;
  return Removal::kRemoved;
}

std::vector<std::string> MasterCore::keys() {
  MutexLock lock(mutex_);
  std::vector<std::string> keys;
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    if (holdings_[entry].listed) keys.push_back(key_of_locked(entry));
  }
  return keys;
}

std::vector<std::string> MasterCore::parked_keys() {
  MutexLock lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [hash, entry] : hidden_) keys.push_back(key_of_locked(entry));
  return keys;
}

std::vector<MasterCore::Replica> MasterCore::replicas(std::string_view key) {
  MutexLock lock(mutex_);
  const auto number = find_locked(key, checksum64(key));
  if (!number) return {};
  std::vector<std::uint32_t> copies = copies_of_locked(*number);
  copies.insert(copies.begin(), *number);
  std::vector<Replica> found;
  for (const std::uint32_t copy : copies) {
    found.push_back({segment_of(copy).name, holdings_[copy].placed.place.offset, index_.extent(copy).bytes});
  }
  return found;
}

}  // namespace nmc::store
