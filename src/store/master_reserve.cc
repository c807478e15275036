// The reserving half of MasterCore: room for new objects, taken from old ones where there is none.
#include <algorithm>

#include "base/check.h"
#include "base/failpoint.h"
#include "store/master_core.h"

namespace nmc::store {
namespace {

const char* name_of(ObjectClass object_class) {
  switch (object_class) {
    case ObjectClass::kBlock: return "block";
    case ObjectClass::kTail: return "tail";
    case ObjectClass::kObject: return "object";
  }
  return "object";
}

}  // namespace

Result<void> MasterCore::check_size_locked(ObjectClass object_class, std::size_t bytes) {
  if (bytes == 0) return invalid_argument("store: an object of 0 bytes");
  if (is_pool_block(object_class) && bytes != options_.block_bytes) {
    return invalid_argument("store: a block of {} bytes, expected {}", bytes, options_.block_bytes);
  }
  std::uint64_t most = 0;
  for (const std::uint16_t number : mounted_locked()) most = std::max(most, segments_[number]->space.capacity());
  if (most == 0) return resource_exhausted("store: no segment is mounted, so there is no room for anything");
  if (object_class == ObjectClass::kTail) most = std::min(most, tail_bytes_max_locked());
  if (bytes > most)
    return invalid_argument("store: {} of {} bytes, {} is the most there can be", name_of(object_class), bytes, most);
  return {};
}

Result<MasterCore::Space> MasterCore::reserve(const Wish& wish) {
  MutexLock lock(mutex_);
  return reserve_locked(wish);
}

Result<std::vector<MasterCore::Space>> MasterCore::reserve_blocks(std::size_t count, std::uint32_t client) {
  MutexLock lock(mutex_);
  // Known before anything is evicted: all or none.
  if (count > blocks_free_locked() && count > blocks_available_locked())
    return no_room_locked("blocks", count * options_.block_bytes);
  NMC_RETURN_IF_ERROR(make_block_room_locked(count));
  return reserve_each_locked({ObjectClass::kBlock, options_.block_bytes, client}, count);
}

Result<std::vector<MasterCore::Space>> MasterCore::reserve_all(const Wish& wish, std::size_t count) {
  MutexLock lock(mutex_);
  NMC_RETURN_IF_ERROR(check_size_locked(wish.object_class, wish.bytes));
  if (!could_hold_locked(wish.bytes, count)) return no_room_locked("blocks", count * wish.bytes);
  return reserve_each_locked(wish, count);
}

Result<std::vector<MasterCore::Space>> MasterCore::reserve_each_locked(const Wish& wish, std::size_t count) {
  std::vector<Space> spaces;
  spaces.reserve(count);
  while (spaces.size() < count) {
    Result<Space> space = reserve_locked(wish);
    if (!space) {
      for (const Space& taken : spaces) abort_locked(taken.entry);
      return Failure(std::move(space).error());
    }
    spaces.push_back(*space);
  }
  return spaces;
}

// Whether there is room for so many, perhaps in the place of what may go.
bool MasterCore::could_hold_locked(std::size_t bytes, std::size_t count) {
  sweep_limbo_locked();
  const std::uint64_t each = OffsetAllocator::round_up(bytes);
  std::uint64_t pieces = 0;
  for (const std::uint16_t number : mounted_locked()) {
    const SegmentSpace& space = segments_[number]->space;
    pieces += space.pieces_possible(each, count - pieces,
                                    [this](std::uint32_t entry) NMC_NO_THREAD_SAFETY { return may_go_locked(entry); });
    if (pieces >= count) return true;
  }
  return false;
}

Result<MasterCore::Space> MasterCore::reserve_locked(const Wish& wish) {
  if (auto injected = failpoint("store.reserve")) return Failure(*std::move(injected));
  NMC_RETURN_IF_ERROR(check_size_locked(wish.object_class, wish.bytes));
  if (wish.object_class == ObjectClass::kTail) NMC_RETURN_IF_ERROR(make_tail_room_locked(wish.bytes));
  NMC_ASSIGN_OR_RETURN(const std::uint32_t number, take_entry_locked());
  const auto side =
      wish.object_class == ObjectClass::kBlock ? OffsetAllocator::Side::kLow : OffsetAllocator::Side::kHigh;
  const Result<Placed> placed = is_pool_block(wish.object_class)
                                    ? place_block_locked(number)
                                    : place_bytes_locked(wish.bytes, number, choose_segments_locked(wish), side);
  if (!placed) {
    index_.give_entry(number);
    return Failure(placed.error());
  }
  const std::uint64_t generation = next_generation_++;
  const Location at = {placed->segment, placed->place.offset};
  IndexEntry& entry = index_.entry(number);
  Pins::set_reserved(entry.commit, generation);
  index_.set_extent(number, {.bytes = wish.bytes});
  entry.location.store(pack_location(at), std::memory_order_release);
  index_.rest(number).owner.store(index_.epoch() << 32 | wish.client, std::memory_order_release);
  const std::uint8_t flags = wish.held_by_pin ? kHeldByPin : 0;
  index_.set_meta(number, {.object_class = static_cast<std::uint8_t>(wish.object_class), .flags = flags});
  Holding& holding = holdings_[number];
  holding = Holding{};
  holding.placed = *placed;
  holding.object_class = wish.object_class;
  holding.state = EntryState::kReserved;
  holding.reserved_at = clock_.ticks();
  holding.by_client = wish.by_client || wish.held_by_pin;
  holding.held_by_pin = wish.held_by_pin;
  if (holding.by_client) handed_out_.push_back(number);
  MountedSegment& segment = *segments_[placed->segment];
  ++segment.entries;
  ++counters_.reservations;
  if (wish.object_class == ObjectClass::kBlock) ++counters_.blocks_reserved;
  if (wish.object_class == ObjectClass::kTail) tail_bytes_ += placed->place.bytes;
  return Space{number, generation, segment.segment.bytes(at.offset, wish.bytes), at};
}

std::uint64_t MasterCore::tail_bytes_max_locked() {
  if (options_.tail_bytes_max) return *options_.tail_bytes_max;
  constexpr std::uint64_t kShare = 20;
  std::uint64_t capacity = 0;
  for (const std::uint16_t number : mounted_locked()) capacity += segments_[number]->space.capacity();
  return capacity / kShare;
}

Result<void> MasterCore::make_tail_room_locked(std::size_t bytes) {
  const std::uint64_t wanted = OffsetAllocator::round_up(bytes), most = tail_bytes_max_locked();
  while (tail_bytes_ > 0 && tail_bytes_ + wanted > most) {
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    const auto victim = find_victim_locked({class_bit(ObjectClass::kTail), mounted_locked()});
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
    if (grow_index_locked() || sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    const auto victim = find_victim_locked({kAnyClass, mounted_locked()});
    if (!victim) {
      return resource_exhausted("store: all {} index entries are pinned or reserved", index_.view().entries_ready());
    }
    evict_locked(victim->entry);
  }
}

// Twice the entries, or as many as there can be. False when that is what there is, or the machine has no memory left:
// then the index evicts like a full segment.
bool MasterCore::grow_index_locked() {
  const std::uint32_t before = index_.view().entries_ready();
  const auto wanted =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * std::uint64_t{before}, index_.view().entry_count()));
  if (wanted == before || !clients_.reserve(wanted) || !index_.grow(wanted)) return false;
  holdings_.resize(wanted);
  return true;
}

std::uint64_t MasterCore::blocks_free_locked() {
  std::uint64_t blocks = 0;
  for (const std::uint16_t number : mounted_locked()) blocks += segments_[number]->space.blocks_free();
  return blocks;
}

// Room for all of them before the first is placed: a block in the middle of a stretch that is still emptying would
// spoil it for the others.
Result<void> MasterCore::make_block_room_locked(std::size_t blocks) {
  while (blocks_free_locked() < blocks) {
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    // Whatever is oldest: a block makes room at once, objects when enough of them lie together.
    const auto victim = find_victim_locked({kAnyClass, mounted_locked()});
    if (!victim) return no_room_locked("blocks", blocks * options_.block_bytes);
    evict_locked(victim->entry);
  }
  return {};
}

Result<MasterCore::Placed> MasterCore::place_block_locked(std::uint32_t entry) {
  NMC_RETURN_IF_ERROR(make_block_room_locked(1));
  for (const std::uint16_t number : mounted_locked()) {
    if (const auto place = segments_[number]->space.take_block(entry)) return Placed{number, *place};
  }
  return internal_error("store: {} blocks are free, but none was found", blocks_free_locked());
}

Result<MasterCore::Placed> MasterCore::place_bytes_locked(std::size_t bytes, std::uint32_t entry,
                                                          std::span<const std::uint16_t> segments,
                                                          OffsetAllocator::Side side) {
  // Objects are mostly alike in size, so one old one's place often does. Where it doesn't, or blocks are in the way,
  // the coldest stretch of a segment goes.
  constexpr int kSinglesMax = 16;
  for (int singles = 0;;) {
    for (const std::uint16_t number : segments) {
      if (const auto place = segments_[number]->space.take_bytes(bytes, entry, side)) return Placed{number, *place};
    }
    if (sweep_limbo_locked()) continue;
    if (auto injected = failpoint("store.evict")) return Failure(*std::move(injected));
    if (singles++ < kSinglesMax) {
      const auto victim = find_victim_locked({kAnyClass, segments});
      if (!victim) return no_room_locked("an object", bytes);
      if (!is_pool_block(victim->object_class)) {
        evict_locked(victim->entry);
        continue;
      }
    }
    NMC_ASSIGN_OR_RETURN(const bool vacated, vacate_window_locked(bytes, segments));
    if (!vacated) return no_room_locked("an object", bytes);
  }
}

Result<bool> MasterCore::vacate_window_locked(std::size_t bytes, std::span<const std::uint16_t> segments) {
  ++counters_.evict_attempts;
  end_soft_pins_locked();
  for (;;) {
    for (const std::uint16_t number : segments) {
      const auto in_the_way = segments_[number]->space.entries_in_the_way(
          OffsetAllocator::round_up(bytes),
          [this](std::uint32_t entry) NMC_NO_THREAD_SAFETY { return stamp_if_evictable_locked(entry); });
      if (!in_the_way) continue;
      for (const std::uint32_t entry : *in_the_way) evict_locked(entry);
      return true;
    }
    if (observer_ == nullptr || !observer_->relieve()) {
      ++counters_.evict_failures;
      return false;
    }
  }
}

bool MasterCore::is_reservation_locked(std::uint32_t entry, std::uint64_t generation,
                                       std::optional<std::uint32_t> client) {
  if (entry >= holdings_.size()) return false;
  const std::uint64_t commit = index_.entry(entry).commit.load(std::memory_order_relaxed);
  const std::uint64_t owner = index_.rest(entry).owner.load(std::memory_order_relaxed);
  return commit == make_commit_word(generation, EntryState::kReserved) &&
         (!client || static_cast<std::uint32_t>(owner) == *client);
}

bool MasterCore::abort(std::uint32_t entry, std::uint64_t generation, std::optional<std::uint32_t> client) {
  MutexLock lock(mutex_);
  if (!is_reservation_locked(entry, generation, client)) return false;
  abort_locked(entry);
  ++counters_.aborts;
  return true;
}

void MasterCore::abort_locked(std::uint32_t entry) {
  --counters_.reservations;
  if (holdings_[entry].object_class == ObjectClass::kBlock) --counters_.blocks_reserved;
  free_locked(entry);
}

// A client may never have learned of its reservation, or couldn't say that it gave it up: the message, or the answer,
// went with a master. It does say, without a message, which of them it has.
void MasterCore::take_back_lost_locked() {
  std::erase_if(handed_out_, [this](std::uint32_t entry) NMC_NO_THREAD_SAFETY {
    return holdings_[entry].state != EntryState::kReserved || !holdings_[entry].by_client;
  });
  if (handed_out_.empty()) return;
  for (const auto& client : clients_.all()) {
    const std::uint64_t now = clock_.ticks();  // before the look: a put that begins after it is younger
    for (const std::uint32_t entry : handed_out_) {
      const auto owner = static_cast<std::uint32_t>(index_.rest(entry).owner.load(std::memory_order_relaxed));
      if (owner == client->table.client() && is_lost_locked(entry, client->table, now)) take_back_locked(entry);
    }
  }
}

bool MasterCore::is_lost_locked(std::uint32_t entry, const PinTable& owner, std::uint64_t now) {
  const Holding& holding = holdings_[entry];
  if (holding.state != EntryState::kReserved) return false;
  if (holding.held_by_pin) {
    return holding.reserved_at < ticks_ago_locked(kHeldPinDeadline) &&
           pin_count_of(owner.word(entry).load(std::memory_order_relaxed)) == 0;
  }
  const std::uint64_t oldest = owner.header().oldest_put.load(std::memory_order_seq_cst);
  if (oldest > clock_.ticks()) return false;  // of another clock
  return holding.reserved_at < (oldest == 0 ? now : oldest);
}

// Should its client pin it in this instant after all, it either finds it gone, or keeps the space until it lets go.
void MasterCore::take_back_locked(std::uint32_t entry) {
  ++counters_.aborts;
  if (!holdings_[entry].held_by_pin) return abort_locked(entry);
  --counters_.reservations;
  if (holdings_[entry].object_class == ObjectClass::kBlock) --counters_.blocks_reserved;
  Pins::begin_dying(index_.entry(entry).commit);
  bury_locked(entry);
}

// Now, or once a lender has given up its pin.
bool MasterCore::may_go_locked(std::uint32_t entry) {
  const Holding& holding = holdings_[entry];
  return holding.state == EntryState::kCommitted && holding.order != kNoOrder && clients_.user_pins(entry) == 0;
}

std::size_t MasterCore::blocks_available() {
  MutexLock lock(mutex_);
  return blocks_available_locked();
}

std::size_t MasterCore::blocks_available_locked() {
  sweep_limbo_locked();
  std::size_t blocks = 0;
  for (const std::uint16_t number : mounted_locked()) {
    blocks += segments_[number]->space.blocks_possible([this](std::uint32_t entry)
                                                           NMC_NO_THREAD_SAFETY { return may_go_locked(entry); });
  }
  return blocks;
}

Failure MasterCore::no_room_locked(std::string_view what, std::size_t bytes) {
  std::uint64_t capacity = 0, pinned = 0, reserved = 0, limbo = 0;
  for (const std::uint16_t number : mounted_locked()) capacity += segments_[number]->space.capacity();
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    const Holding& holding = holdings_[entry];
    const std::uint64_t taken = holding.placed.place.bytes;
    if (holding.state == EntryState::kReserved) reserved += taken;
    if (holding.state == EntryState::kDying) limbo += taken;
    if (holding.state == EntryState::kCommitted && (holding.order == kNoOrder || clients_.user_pins(entry) > 0))
      pinned += taken;
  }
  return resource_exhausted(
      "store: no room for {} of {} bytes: of {}, {} are pinned, {} reserved, {} removed but still pinned", what, bytes,
      capacity, pinned, reserved, limbo);
}

}  // namespace nmc::store
