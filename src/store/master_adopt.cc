// The part of MasterCore that goes on where a dead master stopped. Nothing but the shared files is believed, and of
// them only what holds together: everything else is derived anew.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/master_core.h"

namespace nmc::store {
namespace {

// The N of "<prefix>N".
std::optional<std::uint32_t> number_after(std::string_view prefix, std::string_view name) {
  std::uint32_t number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

}  // namespace

Result<std::unique_ptr<MasterCore>> MasterCore::adopt(const CoreOptions& options, SharedFiles files, TouchClock& clock,
                                                      Adopted* adopted) {
  NMC_REQUIRE(options.block_bytes == 0);
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, files.open(IndexWriter::kFileName));
  NMC_ASSIGN_OR_RETURN(IndexWriter index, IndexWriter::adopt(std::move(fd)));
  std::unique_ptr<MasterCore> core(new MasterCore(options, std::move(files), clock, std::move(index)));
  MutexLock lock(core->mutex_);
  core->adopt_clients_locked();
  NMC_RETURN_IF_ERROR(core->clients_.reserve(core->index_.view().entries_ready()));
  NMC_RETURN_IF_ERROR(core->adopt_segments_locked());
  Adopted counted;
  core->adopt_entries_locked(counted);
  counted.clients = core->clients_.all().size();
  for (const auto& segment : core->segments_) counted.segments += segment != nullptr ? 1 : 0;
  if (adopted != nullptr) *adopted = counted;
  return core;
}

void MasterCore::adopt_clients_locked() {
  for (const std::string& name : files_.names()) {
    const auto number = number_after(Clients::kFilePrefix, name);
    if (!number) continue;
    auto table = [&]() -> Result<PinTable> {
      NMC_ASSIGN_OR_RETURN(UniqueFd fd, files_.open(name));
      return PinTable::open(std::move(fd), index_.view().boot_id());
    }();
    if (table && table->client() == *number && table->entry_count() == index_.view().entry_count() &&
        table->locked_by_another()) {
      clients_.adopt(*std::move(table));
    } else {
      files_.remove(name);
    }
  }
}

Result<void> MasterCore::adopt_segments_locked() {
  for (const std::string& name : files_.names()) {
    const auto number = number_after(Segment::kFilePrefix, name);
    if (!number) continue;
    const std::uint64_t word = index_.view().segment_word(*number);
    auto segment = [&]() -> Result<Segment> {
      NMC_ASSIGN_OR_RETURN(UniqueFd fd, files_.open(name));
      return Segment::open(std::move(fd), {index_.view().boot_id(), *number, incarnation_of(word)});
    }();
    if (!segment) {
      log_warning("store: {} is of no use, removing it: {}", name, segment.error().message);
      files_.remove(name);
      continue;
    }
    const std::string called = segment->name();
    auto mounted = std::make_unique<MountedSegment>(*std::move(segment), 0, called, incarnation_of(word), positions_);
    mounted->state = segment_state_of(word);
    mounted->parked_at = clock_.ticks();  // if it is: its time begins anew
    NMC_RETURN_IF_ERROR(set_segment_locked(*number, std::move(mounted)));
  }
  for (std::uint32_t number = 0; number < kSegmentsMax; ++number) {
    const std::uint64_t word = index_.view().segment_word(number);
    const bool here = number < segments_.size() && segments_[number] != nullptr;
    if (segment_state_of(word) != SegmentState::kLeaving && !here)  // its file is gone
      index_.set_segment_word(number, make_segment_word(incarnation_of(word) + 1, SegmentState::kLeaving));
  }
  return {};
}

// What the entry says it takes of the segments; false when that can't be.
bool MasterCore::ranges_of_locked(std::uint32_t number, std::vector<Range>& ranges) {
  const IndexEntry& entry = index_.entry(number);
  const EntryMeta meta = index_.meta(number);
  const EntryExtent extent = index_.extent(number);
  const auto add = [&](std::uint64_t location, std::uint64_t bytes, bool is_key) NMC_NO_THREAD_SAFETY {
    const Location at = unpack_location(location);
    if (at.segment >= segments_.size() || segments_[at.segment] == nullptr) return false;
    const std::uint64_t capacity = segments_[at.segment]->space.capacity();
    if (bytes == 0 || bytes > capacity || at.offset % OffsetAllocator::kAlignment != 0) return false;
    const std::uint64_t taken = OffsetAllocator::round_up(bytes);
#if !defined(NMC_PLANT_SHARED_FILES)  // left out on purpose in a build that shows what fuzzing finds
    if (at.offset > capacity || taken > capacity - at.offset) return false;
#endif
    ranges.push_back({at.segment, at.offset, taken, number, is_key});
    return true;
  };
  if (meta.object_class >= kClasses) return false;
  if (!add(entry.location.load(std::memory_order_relaxed), extent.bytes, false)) return false;
  const EntryState state = state_of(entry.commit.load(std::memory_order_relaxed));
  // A reservation, or one that was taken back while its client has it pinned: there is no key.
  if (state == EntryState::kReserved || (state == EntryState::kDying && (meta.flags & kHeldByPin) != 0)) return true;
  if (extent.key_bytes == 0 || extent.key_bytes > kKeyBytesMax) return false;
  if (extent.key_bytes <= kInlineKeyBytes) return true;
  const std::uint64_t key_at = entry.key[0].load(std::memory_order_relaxed);
  return unpack_location(key_at).segment == ranges.back().segment && add(key_at, extent.key_bytes, true);
}

// Whether a sound entry lives on: a reservation while its owner does, a dying object while somebody has it pinned.
bool MasterCore::still_wanted_locked(std::uint32_t number) {
  const IndexEntry& entry = index_.entry(number);
  switch (state_of(entry.commit.load(std::memory_order_relaxed))) {
    case EntryState::kFree: return false;
    case EntryState::kReserved:
      return clients_.find(static_cast<std::uint32_t>(index_.rest(number).owner.load(std::memory_order_relaxed))) !=
             nullptr;
    case EntryState::kCommitted: return true;
    case EntryState::kDying: return !Pins::may_free(clients_.words_of(number));
  }
  return false;
}

void MasterCore::adopt_entries_locked(Adopted& adopted) {
  const std::uint32_t ready = index_.view().entries_ready();
  std::vector<Range> ranges;
  std::vector<bool> kept(ready), damaged(ready);
  for (std::uint32_t number = 0; number < ready; ++number) {
    const std::uint64_t word = index_.entry(number).commit.load(std::memory_order_relaxed);
    next_generation_ = std::max(next_generation_, generation_of(word) + 1);
    if (!still_wanted_locked(number)) continue;
    std::vector<Range> own;
    kept[number] = ranges_of_locked(number, own);
    damaged[number] = !kept[number];
    if (kept[number]) ranges.insert(ranges.end(), own.begin(), own.end());
  }

  const auto before = [](const Range& a, const Range& b) {
    return std::pair(a.segment, a.offset) < std::pair(b.segment, b.offset);
  };
  std::sort(ranges.begin(), ranges.end(), before);
  for (std::size_t i = 0, reaches = 0; i < ranges.size(); ++i) {  // `reaches`: of those before, the one that ends last
    const Range& last = ranges[reaches];
    if (i > 0 && last.segment == ranges[i].segment && last.offset + last.bytes > ranges[i].offset) {
      for (const std::uint32_t entry : {last.entry, ranges[i].entry}) damaged[entry] = true, kept[entry] = false;
    }
    if (last.segment != ranges[i].segment || ranges[i].offset + ranges[i].bytes >= last.offset + last.bytes)
      reaches = i;
  }
  std::erase_if(ranges, [&](const Range& range) { return !kept[range.entry]; });
  restore_places_locked(ranges);

  for (std::uint32_t number = ready; number-- > 0;) {
    if (kept[number]) continue;
    adopted.dropped_entries += damaged[number] ? 1 : 0;
    Pins::set_free(index_.entry(number).commit);
    index_.give_entry(number);
  }
  const std::vector<std::uint32_t> committed = committed_once_locked();
  index_.restore_slots(committed);  // all at once: a living reader misses none of them meanwhile
  for (const std::uint32_t entry : committed) mark_listed_locked(entry, last_use_locked(entry));
  adopt_copies_locked();
  adopted.objects = counters_.objects;
  adopted.reservations = counters_.reservations;
  if (adopted.dropped_entries > 0)
    log_warning("store: {} index entries were damaged and are dropped", adopted.dropped_entries);
}

// Holdings for the entries of these ranges, which are sound and apart from each other.
void MasterCore::restore_places_locked(std::vector<Range>& ranges) {
  for (auto begin = ranges.begin(); begin != ranges.end();) {
    const std::uint16_t number = begin->segment;
    const auto end = std::find_if(begin, ranges.end(), [&](const Range& range) { return range.segment != number; });
    std::vector<OffsetAllocator::Range> taken;
    for (auto range = begin; range != end; ++range) taken.push_back({range->offset, range->bytes, range->entry});
    MountedSegment& segment = *segments_[number];
    const std::vector<Place> places = segment.space.restore(taken);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Range& range = begin[static_cast<std::ptrdiff_t>(i)];
      Holding& holding = holdings_[range.entry];
      if (range.is_key) {
        holding.key = places[i];
        continue;
      }
      const IndexEntry& entry = index_.entry(range.entry);
      holding.placed = {number, places[i]};
      holding.object_class = static_cast<ObjectClass>(index_.meta(range.entry).object_class);
      holding.state = state_of(entry.commit.load(std::memory_order_relaxed));
      ++segment.entries;
      if (holding.object_class == ObjectClass::kTail) tail_bytes_ += places[i].bytes;
      if (holding.state == EntryState::kReserved) {
        holding.reserved_at = clock_.ticks();  // what the last master put by itself is lost with it
        holding.by_client = true;
        holding.held_by_pin = (index_.meta(range.entry).flags & kHeldByPin) != 0;
        handed_out_.push_back(range.entry);
        ++counters_.reservations;
        if (holding.object_class == ObjectClass::kBlock) ++counters_.blocks_reserved;
      }
      if (holding.state == EntryState::kDying) {
        limbo_.push_back(range.entry);
        counters_.limbo_bytes += places[i].bytes;
      }
    }
    begin = end;
  }
}

// The committed entries to be found, oldest first. Of two with one key, as a master leaves them that dies while one
// takes the other's place, the newer one stays. One whose key isn't what its hash says goes.
std::vector<std::uint32_t> MasterCore::committed_once_locked() {
  struct Committed {
    std::uint64_t hash, generation;
    std::uint32_t entry;
  };
  std::vector<Committed> all;
  for (std::uint32_t number = 0; number < holdings_.size(); ++number) {
    if (holdings_[number].state != EntryState::kCommitted) continue;
    if ((index_.meta(number).flags & kReplica) != 0) continue;
    all.push_back(
        {index_.key_hash(number), generation_of(index_.entry(number).commit.load(std::memory_order_relaxed)), number});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.hash, a.generation) < std::pair(b.hash, b.generation);
  });
  std::vector<Committed> kept;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string key = key_of_locked(all[i].entry);
    bool superseded = false;
    for (std::size_t later = i + 1; later < all.size() && all[later].hash == all[i].hash; ++later)
      superseded = superseded || key_equals_locked(all[later].entry, key);
    const SegmentState state = segment_of(all[i].entry).state;
    if (!superseded && checksum64(key) == all[i].hash && state != SegmentState::kLeaving) {
      if (state == SegmentState::kMounted)
        kept.push_back(all[i]);
      else
        hide_locked(all[i].entry);
      continue;
    }
    Pins::begin_dying(index_.entry(all[i].entry).commit);
    bury_locked(all[i].entry);
  }
  // Uses that nobody remembers: then the older object goes first.
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.generation < b.generation; });
  std::vector<std::uint32_t> entries;
  for (const Committed& one : kept) entries.push_back(one.entry);
  return entries;
}

// Further copies, by the links that lead to them. One that nothing leads to takes the place of the first, if that is
// gone.
void MasterCore::adopt_copies_locked() {
  std::vector<bool> led_to(holdings_.size());
  for (std::uint32_t first = 0; first < holdings_.size(); ++first) {
    if (!holdings_[first].listed) continue;
    std::vector<std::uint32_t> copies;
    const std::uint64_t hash = index_.key_hash(first);
    const std::string key = key_of_locked(first);
    std::uint32_t next = index_.meta(first).next_replica;
    while (next != 0 && next - 1 < holdings_.size() && !led_to[next - 1]) {
      const std::uint32_t copy = next - 1;
      const EntryMeta meta = index_.meta(copy);
      if (holdings_[copy].state != EntryState::kCommitted || (meta.flags & kReplica) == 0 ||
          index_.key_hash(copy) != hash || !key_equals_locked(copy, key) ||
          segment_of(copy).state != SegmentState::kMounted)
        break;
      led_to[copy] = true;
      copies.push_back(copy);
      next = meta.next_replica;
    }
    link_copies_locked(first, copies);
  }
  for (std::uint32_t copy = 0; copy < holdings_.size(); ++copy) {
    if (holdings_[copy].state != EntryState::kCommitted || led_to[copy]) continue;
    EntryMeta meta = index_.meta(copy);
    if ((meta.flags & kReplica) == 0) continue;
    const std::string key = key_of_locked(copy);
    const std::uint64_t hash = index_.key_hash(copy);
    if (segment_of(copy).state != SegmentState::kMounted || checksum64(key) != hash || find_locked(key, hash)) {
      kill_locked(copy);
      continue;
    }
    meta.flags &= static_cast<std::uint8_t>(~kReplica);
    meta.next_replica = 0;
    index_.set_meta(copy, meta);
    list_locked(copy, last_use_locked(copy));
  }
}

}  // namespace nmc::store
