#include "store/master_core.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t kEpoch = 1;  // a memfd has one master in its life

std::uint32_t index_entries_for(const StoreOptions& options) {
  constexpr std::size_t kSpare = 1024;  // reservations, tails and limbo
  constexpr std::size_t kObjectBytesAssumed = 16 * 1024;
  const std::size_t objects = options.block_bytes > 0 ? 2 * (options.dram_bytes / options.block_bytes)
                                                      : options.dram_bytes / kObjectBytesAssumed;
  const std::size_t entries = options.index_entries > 0 ? options.index_entries : objects + kSpare;
  return static_cast<std::uint32_t>(std::min<std::size_t>(entries, kIndexEntriesMax));
}

std::uint64_t new_boot_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

const char* name_of(ObjectClass object_class) {
  switch (object_class) {
    case ObjectClass::kBlock: return "block";
    case ObjectClass::kTail: return "tail";
    case ObjectClass::kObject: return "object";
  }
  return "object";
}

}  // namespace

Result<std::unique_ptr<MasterCore>> MasterCore::create(const StoreOptions& options, TouchClock& clock) {
  const std::uint64_t capacity = options.dram_bytes / OffsetAllocator::kAlignment * OffsetAllocator::kAlignment;
  if (capacity == 0) return invalid_argument("store: {} bytes of DRAM, expected at least 64", options.dram_bytes);
  if (OffsetAllocator::round_up(options.block_bytes) > capacity) {
    return invalid_argument("store: blocks of {} bytes don't fit {} bytes of DRAM", options.block_bytes,
                            options.dram_bytes);
  }
  const std::uint64_t boot_id = new_boot_id();
  NMC_ASSIGN_OR_RETURN(Segment segment, Segment::create(capacity));
  NMC_ASSIGN_OR_RETURN(IndexWriter index, IndexWriter::create(index_entries_for(options), boot_id, kEpoch));
  log_info("store: {} bytes in a memfd, gone with its last holder; {} index entries", capacity,
           index.view().entry_count());
  return std::unique_ptr<MasterCore>(new MasterCore(options, clock, boot_id, std::move(segment), std::move(index)));
}

MasterCore::MasterCore(const StoreOptions& options, TouchClock& clock, std::uint64_t boot_id, Segment segment,
                       IndexWriter index)
    : options_(options),
      boot_id_(boot_id),
      tail_bytes_max_(options.tail_bytes.value_or(options.dram_bytes / 20)),
      clock_(clock),
      segment_(std::move(segment)),
      index_(std::move(index)),
      space_(segment_.size(), options.block_bytes),
      clients_(index_.view().entry_count(), boot_id),
      holdings_(index_.view().entry_count()) {}

void MasterCore::set_observer(MasterObserver* observer) {
  MutexLock lock(mutex_);
  observer_ = observer;
}

Result<const PinTable*> MasterCore::add_client(Clients::Kind kind) {
  MutexLock lock(mutex_);
  return clients_.add(kind);
}

void MasterCore::drop_client(std::uint32_t client) {
  MutexLock lock(mutex_);
  clients_.drop(client);
  sweep_limbo_locked();
}

// ---- reserving ----

Result<void> MasterCore::check_size(ObjectClass object_class, std::size_t bytes) const {
  if (bytes == 0) return invalid_argument("store: an object of 0 bytes");
  if (object_class == ObjectClass::kBlock && bytes != options_.block_bytes) {
    return invalid_argument("store: a block of {} bytes, expected {}", bytes, options_.block_bytes);
  }
  const std::uint64_t most =
      object_class == ObjectClass::kTail ? std::min<std::uint64_t>(tail_bytes_max_, segment_.size()) : segment_.size();
  if (bytes > most)
    return invalid_argument("store: {} of {} bytes, {} is the most there can be", name_of(object_class), bytes, most);
  return {};
}

Result<MasterCore::Space> MasterCore::reserve(ObjectClass object_class, std::size_t bytes, std::uint32_t client) {
  MutexLock lock(mutex_);
  return reserve_locked(object_class, bytes, client);
}

Result<std::vector<MasterCore::Space>> MasterCore::reserve_blocks(std::size_t count, std::uint32_t client) {
  MutexLock lock(mutex_);
  // Known before anything is evicted: all or none.
  if (count > space_.blocks_free() && count > blocks_available_locked())
    return no_room_locked("blocks", count * options_.block_bytes);
  NMC_RETURN_IF_ERROR(make_block_room_locked(count));
  std::vector<Space> spaces;
  spaces.reserve(count);
  while (spaces.size() < count) {
    Result<Space> space = reserve_locked(ObjectClass::kBlock, options_.block_bytes, client);
    if (!space) {
      for (const Space& taken : spaces) abort_locked(taken.entry);
      return Failure(std::move(space).error());
    }
    spaces.push_back(*space);
  }
  return spaces;
}

Result<MasterCore::Space> MasterCore::reserve_locked(ObjectClass object_class, std::size_t bytes,
                                                     std::uint32_t client) {
  if (auto injected = failpoint("store.reserve")) return Failure(*std::move(injected));
  NMC_RETURN_IF_ERROR(check_size(object_class, bytes));
  if (object_class == ObjectClass::kTail) NMC_RETURN_IF_ERROR(make_tail_room_locked(bytes));
  NMC_ASSIGN_OR_RETURN(const std::uint32_t number, take_entry_locked());
  const Result<Place> place =
      object_class == ObjectClass::kBlock ? place_block_locked(number) : place_bytes_locked(bytes, number);
  if (!place) {
    index_.give_entry(number);
    return Failure(place.error());
  }
  const std::uint64_t generation = next_generation_++;
  IndexEntry& entry = index_.entry(number);
  Pins::set_reserved(entry.commit, generation);
  entry.size.store(bytes, std::memory_order_release);
  entry.location.store(pack_location({0, place->offset}), std::memory_order_release);
  entry.owner.store(kEpoch << 32 | client, std::memory_order_release);
  entry.meta.store(pack_meta({0, static_cast<std::uint8_t>(object_class), 0}), std::memory_order_release);
  holdings_[number] = {*place, std::nullopt, object_class, EntryState::kReserved};
  ++counters_.reservations;
  if (object_class == ObjectClass::kBlock) ++counters_.blocks_reserved;
  if (object_class == ObjectClass::kTail) tail_bytes_ += place->bytes;
  return Space{number, generation, segment_.bytes(place->offset, bytes)};
}

Result<void> MasterCore::make_tail_room_locked(std::size_t bytes) {
  const std::uint64_t wanted = OffsetAllocator::round_up(bytes);
  while (tail_bytes_ > 0 && tail_bytes_ + wanted > tail_bytes_max_) {
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    const auto victim = find_victim_locked(class_bit(ObjectClass::kTail));
    if (!victim) {
      return resource_exhausted("store: no room for a tail of {} bytes: all {} bytes of tails are in use", bytes,
                                tail_bytes_);
    }
    evict_locked(victim->entry);
  }
  return {};
}

Result<std::uint32_t> MasterCore::take_entry_locked() {
  for (;;) {
    if (const auto number = index_.take_entry()) return *number;
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    const auto victim = find_victim_locked(kAnyClass);
    if (!victim) {
      return resource_exhausted("store: all {} index entries are pinned or reserved", index_.view().entry_count());
    }
    evict_locked(victim->entry);
  }
}

// Room for all of them before the first is placed: a block in the middle of a stretch that is still emptying would
// spoil it for the others.
Result<void> MasterCore::make_block_room_locked(std::size_t blocks) {
  while (space_.blocks_free() < blocks) {
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    // Whatever is oldest: a block makes room at once, objects when enough of them lie together.
    const auto victim = find_victim_locked(kAnyClass);
    if (!victim) return no_room_locked("blocks", blocks * options_.block_bytes);
    evict_locked(victim->entry);
  }
  return {};
}

Result<Place> MasterCore::place_block_locked(std::uint32_t entry) {
  NMC_RETURN_IF_ERROR(make_block_room_locked(1));
  const auto place = space_.take_block(entry);
  NMC_ASSERT(place.has_value(), "{} blocks are free", space_.blocks_free());
  return *place;
}

Result<Place> MasterCore::place_bytes_locked(std::size_t bytes, std::uint32_t entry) {
  // Objects are mostly alike in size, so one old one's place often does. Where it doesn't, or blocks are in the way,
  // the coldest stretch of the segment goes.
  constexpr int kSinglesMax = 16;
  for (int singles = 0;;) {
    if (const auto place = space_.take_bytes(bytes, entry)) return *place;
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    if (singles++ < kSinglesMax) {
      const auto victim = find_victim_locked(kAnyClass);
      if (!victim) return no_room_locked("an object", bytes);
      if (victim->object_class != ObjectClass::kBlock) {
        evict_locked(victim->entry);
        continue;
      }
    }
    NMC_ASSIGN_OR_RETURN(const bool vacated, vacate_window_locked(bytes));
    if (!vacated) return no_room_locked("an object", bytes);
  }
}

Result<bool> MasterCore::vacate_window_locked(std::size_t bytes) {
  for (;;) {
    const auto in_the_way = space_.entries_in_the_way(
        OffsetAllocator::round_up(bytes),
        [this](std::uint32_t entry) NMC_NO_THREAD_SAFETY { return stamp_if_evictable_locked(entry); });
    if (in_the_way) {
      for (const std::uint32_t entry : *in_the_way) evict_locked(entry);
      return true;
    }
    if (observer_ == nullptr || !observer_->relieve()) return false;
  }
}

void MasterCore::abort(std::uint32_t entry, std::uint64_t generation) {
  MutexLock lock(mutex_);
  NMC_REQUIRE(
      index_.entry(entry).commit.load(std::memory_order_relaxed) == make_commit_word(generation, EntryState::kReserved),
      "entry={} generation={}", entry, generation);
  abort_locked(entry);
  ++counters_.aborts;
}

void MasterCore::abort_locked(std::uint32_t entry) {
  --counters_.reservations;
  if (holdings_[entry].object_class == ObjectClass::kBlock) --counters_.blocks_reserved;
  free_locked(entry);
}

std::size_t MasterCore::blocks_available() {
  MutexLock lock(mutex_);
  return blocks_available_locked();
}

std::size_t MasterCore::blocks_available_locked() {
  sweep_limbo_locked();
  return space_.blocks_possible([this](std::uint32_t entry) NMC_NO_THREAD_SAFETY {
    return holdings_[entry].state == EntryState::kCommitted && clients_.user_pins(entry) == 0;
  });
}

Failure MasterCore::no_room_locked(std::string_view what, std::size_t bytes) {
  std::uint64_t pinned = 0, reserved = 0, limbo = 0;
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    const Holding& holding = holdings_[entry];
    if (holding.state == EntryState::kReserved) reserved += holding.place.bytes;
    if (holding.state == EntryState::kDying) limbo += holding.place.bytes;
    if (holding.state == EntryState::kCommitted && clients_.user_pins(entry) > 0) pinned += holding.place.bytes;
  }
  return resource_exhausted(
      "store: no room for {} of {} bytes: of {}, {} are pinned, {} reserved, {} removed but still pinned", what, bytes,
      space_.capacity(), pinned, reserved, limbo);
}

// ---- committing ----

Result<MasterCore::Held> MasterCore::commit(const Commit& commit) {
  MutexLock lock(mutex_);
  const std::uint32_t number = commit.entry;
  IndexEntry& entry = index_.entry(number);
  NMC_REQUIRE(
      entry.commit.load(std::memory_order_relaxed) == make_commit_word(commit.generation, EntryState::kReserved),
      "entry={} generation={}", number, commit.generation);
  if (auto injected = failpoint("store.commit")) return Failure(*std::move(injected));
  if (commit.key.empty() || commit.key.size() > kKeyBytesMax) {
    return invalid_argument("store: a key of {} bytes, expected 1 to {}", commit.key.size(), kKeyBytesMax);
  }
  if (commit.restore_cancelled != nullptr && commit.restore_cancelled->load(std::memory_order_relaxed)) {
    return cancelled("store: removed while it was restored");
  }
  const std::uint64_t hash = checksum64(commit.key);
  if (find_locked(commit.key, hash)) {
    const auto winner = pin_locked(commit.key, hash, *commit.pin_for, commit.stamp);
    if (!winner) return resource_exhausted("store: an object has the most pins that one client can hold");
    abort_locked(number);
    ++counters_.commit_duplicates;
    return *winner;
  }
  NMC_RETURN_IF_ERROR(write_key_locked(number, commit.key, hash));

  Holding& holding = holdings_[number];
  EntryMeta meta = {static_cast<std::uint16_t>(commit.key.size()), static_cast<std::uint8_t>(holding.object_class), 0};
  if (commit.checksum) meta.flags |= kChecksumValid;
  entry.checksum.store(commit.checksum.value_or(0), std::memory_order_release);
  entry.meta.store(pack_meta(meta), std::memory_order_release);
  index_.add_slot(hash, number);
  Pins::publish(entry.commit);
  const std::uint64_t committed = entry.commit.load(std::memory_order_relaxed);
  NMC_ASSERT(Pins::pin(entry.commit, committed, commit.pin_for->word(number), commit.stamp), "entry={}", number);

  holding.state = EntryState::kCommitted;
  order_of(holding.object_class).insert(number, commit.stamp);
  --counters_.reservations;
  ++counters_.commits;
  ++counters_.objects;
  if (holding.object_class == ObjectClass::kBlock) {
    --counters_.blocks_reserved;
    ++counters_.blocks_cached;
  }
  if (observer_ != nullptr && commit.restore_cancelled == nullptr) {
    observer_->on_commit(number, commit.generation, holding.object_class, commit.key);
  }
  return Held{number, commit.generation};
}

Result<void> MasterCore::write_key_locked(std::uint32_t number, std::string_view key, std::uint64_t hash) {
  IndexEntry& entry = index_.entry(number);
  entry.key_hash.store(hash, std::memory_order_release);
  if (key.size() > kInlineKeyBytes) {
    NMC_ASSIGN_OR_RETURN(const Place place, place_bytes_locked(key.size(), number));
    std::memcpy(segment_.bytes(place.offset, key.size()).data(), key.data(), key.size());
    entry.key[0].store(pack_location({0, place.offset}), std::memory_order_release);
    holdings_[number].key = place;
    return {};
  }
  std::array<std::uint64_t, kInlineKeyWords> words{};
  std::memcpy(words.data(), key.data(), key.size());
  for (std::size_t i = 0; i < words.size(); ++i) entry.key[i].store(words[i], std::memory_order_release);
  return {};
}

bool MasterCore::key_equals_locked(std::uint32_t number, std::string_view key) {
  const IndexEntry& entry = index_.entry(number);
  if (!entry_may_hold(entry, key, entry.key_hash.load(std::memory_order_relaxed))) return false;
  const std::optional<Place>& place = holdings_[number].key;
  return !place || std::memcmp(segment_.bytes(place->offset, key.size()).data(), key.data(), key.size()) == 0;
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

bool MasterCore::remove(std::string_view key) {
  MutexLock lock(mutex_);
  const auto number = find_locked(key, checksum64(key));
  if (number) retire_locked(*number);
  const bool below = observer_ != nullptr && observer_->on_remove(key);
  if (!number && !below) return false;
  ++counters_.removes;
  return true;
}

}  // namespace nmc::store
