#include "store/shared_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"

namespace nmc::store {
namespace {

constexpr int kTries = 16;

}  // namespace

Pin Pin::duplicate() const {
  Pin copy;
  if (word_ == nullptr) return copy;
  NMC_REQUIRE(Pins::pin_again(*word_), "generation={} has {} pins", generation_, kPinCountMask);
  copy.word_ = word_;
  copy.source_ = source_;
  copy.generation_ = generation_;
  copy.bytes_ = bytes_;
  return copy;
}

SharedStoreReader::SharedStoreReader(ClientFiles files, Mapping index, const IndexView& view, PinTable pins,
                                     TouchClock& clock)
    : open_segment_(std::move(files.open_segment)),
      index_(std::move(index)),
      view_(view),
      pins_(std::move(pins)),
      clock_(clock) {}

SharedStoreReader::~SharedStoreReader() {
  for (auto& segment : segments_) delete segment.load(std::memory_order_relaxed);
}

Result<std::unique_ptr<SharedStoreReader>> SharedStoreReader::open(ClientFiles files, TouchClock& clock) {
  struct stat info {};
  if (::fstat(files.index.get(), &info) != 0) return Failure(os_error("stat", "index"));
  NMC_ASSIGN_OR_RETURN(Mapping index, Mapping::map(files.index.get(), static_cast<std::size_t>(info.st_size),
                                                   Mapping::Access::kRead, "index"));
  NMC_ASSIGN_OR_RETURN(const IndexView view, IndexView::over(index.bytes()));
  NMC_ASSIGN_OR_RETURN(PinTable pins, PinTable::open(std::move(files.pins), view.boot_id()));
  if (pins.entry_count() < view.entry_count()) {
    return corrupt("pin table: {} entries, the index has {}", pins.entry_count(), view.entry_count());
  }
  return std::unique_ptr<SharedStoreReader>(
      new SharedStoreReader(std::move(files), std::move(index), view, std::move(pins), clock));
}

// ---- The way of a hit, short enough that the processor is at several lookups at once
// ---------------------------------

inline const SharedStoreReader::MappedSegment* SharedStoreReader::mapped(std::size_t number,
                                                                         std::uint64_t incarnation) const {
  const MappedSegment* segment = segments_[number].load(std::memory_order_acquire);
  return segment != nullptr && segment->incarnation == incarnation ? segment : nullptr;
}

inline std::span<const std::byte> SharedStoreReader::bytes_at(std::uint64_t location, std::uint64_t size) {
  const Location at = unpack_location(location);
  const std::uint64_t incarnation = incarnation_of(view_.segment_word(at.segment));
  if (incarnation == 0) return {};  // none was ever mounted there
  const MappedSegment* segment = mapped(at.segment, incarnation);
  if (segment == nullptr) [[unlikely]]
    segment = map_segment(at.segment);
  return segment == nullptr ? std::span<const std::byte>() : segment->view.bytes(at.offset, size);
}

// The entry is pinned, so its fields stand still; where they point is checked all the same.
inline void SharedStoreReader::adopt_into(Pin& pin, std::uint32_t number, std::uint64_t generation) {
  const IndexEntry& entry = view_.entry(number);
  pin.word_ = &pins_.word(number);
  pin.generation_ = generation;
  pin.bytes_ = bytes_at(entry.location.load(std::memory_order_relaxed),
                        unpack_extent(entry.extent.load(std::memory_order_relaxed)).bytes);
}

// Whether the entry is readable and has this key, as far as can be seen without a pin: not of a long key.
inline bool SharedStoreReader::holds(std::uint32_t number, std::string_view key, std::uint64_t hash) const {
  const IndexEntry& entry = view_.entry(number);
  const std::uint64_t seen = entry.commit.load(std::memory_order_acquire);
  return state_of(seen) == EntryState::kCommitted && key.size() <= kInlineKeyBytes &&
         view_.may_hold(number, key, hash) && entry.commit.load(std::memory_order_acquire) == seen;
}

inline SharedStoreReader::Step SharedStoreReader::try_entry(std::uint32_t number, std::string_view key,
                                                            std::uint64_t hash, Pin& pin) {
  const IndexEntry& entry = view_.entry(number);
  // Acquire pairs with the master's publish: fields of this generation or a later one.
  const std::uint64_t seen = entry.commit.load(std::memory_order_acquire);
  if (state_of(seen) != EntryState::kCommitted || !view_.may_hold(number, key, hash)) [[unlikely]]
    return Step::kNext;
  if (!Pins::pin(entry.commit, seen, pins_.word(number), clock_.stamp())) [[unlikely]]
    return Step::kChanged;
  adopt_into(pin, number, generation_of(seen));
  const bool ours = key.size() <= kInlineKeyBytes || long_key_equals(entry, key);
  if (ours && !pin.bytes_.empty()) return Step::kTaken;
  pin = Pin();
  return Step::kNext;
}

SharedStoreReader::Answer SharedStoreReader::find(std::string_view key, Pin& pin) {
  const std::uint64_t hash = checksum64(key);
  const std::uint32_t number = view_.first(hash);
  if (number != IndexView::kNone) [[likely]] {
    __builtin_prefetch(&pins_.word(number), 1);  // before the entry's line is waited for
    if (try_entry(number, key, hash, pin) == Step::kTaken) [[likely]]
      return Answer::kFound;
  }
  return find_slowly(key, hash, pin);
}

SharedStoreReader::Answer SharedStoreReader::find_slowly(std::string_view key, std::uint64_t hash, Pin& pin) {
  for (int i = 0; i < kTries; ++i) {
    Step last = Step::kNext;
    // An entry whose slot was the key's, but isn't the key's any more, may have been replaced since we saw the slot.
    // (Keys alike in half of their hash look the same; then all tries end alike.)
    bool passed = false;
    const IndexView::ProbeEnd end = view_.probe(hash, [&](std::uint32_t number) {
      passed = true;
      last = try_entry(number, key, hash, pin);
      return last != Step::kNext;
    });
    if (last == Step::kTaken) return Answer::kFound;
    if (end == IndexView::ProbeEnd::kMiss && !passed) return Answer::kMiss;
  }
  return Answer::kUnsettled;
}

// The entry that holds the key now.
template <bool kTouches>
inline std::optional<std::uint32_t> SharedStoreReader::look(std::string_view key) {
  const std::uint64_t hash = checksum64(key);
  const std::uint32_t number = view_.first(hash);
  if (number == IndexView::kNone) [[unlikely]]
    return look_slowly(key, hash);
  if (kTouches) __builtin_prefetch(&pins_.word(number), 1);
  if (holds(number, key, hash)) [[likely]]
    return number;
  return look_slowly(key, hash);
}

inline std::optional<std::uint64_t> SharedStoreReader::unverified(const Pin& pin) const {
  const std::uint32_t number = pins_.entry_of(*pin.word_);
  const IndexEntry& entry = view_.entry(number);
  if (!unpack_extent(entry.extent.load(std::memory_order_relaxed)).has_checksum) return std::nullopt;
  if (pins_.verified(number).load(std::memory_order_relaxed) == pin.generation()) return std::nullopt;
  return view_.rest(number).checksum.load(std::memory_order_relaxed);
}

inline bool SharedStoreReader::verify(const Pin& pin) {
  const auto wanted = unverified(pin);
  if (!wanted) [[likely]]
    return true;
  return settle(pin, checksum64(pin.bytes()) == *wanted);
}

std::optional<Pin> SharedStoreReader::lookup(std::string_view key) {
  std::optional<Pin> pin(std::in_place);
  const bool over_cap = pins_.header().over_limbo_cap.load(std::memory_order_relaxed) != 0;
  if (!over_cap && find(key, *pin) == Answer::kFound && verify(*pin)) [[likely]] {
    count_lookup(true);
    return pin;
  }
  count_lookup(false);
  pin.reset();
  return pin;
}

std::int64_t SharedStoreReader::size_of(std::string_view key) {
  Pin pin;
  const bool over_cap = pins_.header().over_limbo_cap.load(std::memory_order_relaxed) != 0;
  const bool hit = !over_cap && find(key, pin) == Answer::kFound;
  count_lookup(hit);
  return hit ? static_cast<std::int64_t>(pin.bytes().size()) : kMissed;
}

std::int64_t SharedStoreReader::copy(std::string_view key, std::span<const std::span<std::byte>> to) {
  Pin pin;
  const bool over_cap = pins_.header().over_limbo_cap.load(std::memory_order_relaxed) != 0;
  bool hit = !over_cap && find(key, pin) == Answer::kFound;
  std::span<const std::byte> bytes = pin.bytes();
  if (hit) {
    std::size_t room = 0;
    for (const auto& span : to) room += span.size();
    if (room < bytes.size()) return kTooLarge;
    const auto wanted = unverified(pin);
    if (!wanted || to.size() != 1) {
      hit = !wanted || verify(pin);
      for (const auto& span : to) {
        if (!hit || bytes.empty()) break;
        const std::size_t take = std::min(span.size(), bytes.size());
        std::memcpy(span.data(), bytes.data(), take);
        bytes = bytes.subspan(take);
      }
    } else {
      hit = settle(pin, copy_and_checksum64(to[0].first(bytes.size()), bytes) == *wanted);
    }
  }
  count_lookup(hit);
  return hit ? static_cast<std::int64_t>(pin.bytes().size()) : kMissed;
}

bool SharedStoreReader::settle(const Pin& pin, bool right) {
  if (right)
    pins_.verified(pins_.entry_of(*pin.word_)).store(pin.generation(), std::memory_order_relaxed);
  else
    damaged_found_.fetch_add(1, std::memory_order_relaxed);
  return right;
}

bool SharedStoreReader::contains(std::string_view key) { return look<false>(key).has_value(); }

bool SharedStoreReader::probe(std::string_view key) {
  const auto number = look<true>(key);
  if (!number) return false;
  // Of the generation that is there now: should it be another, this use is of an object with another key, once.
  const std::uint64_t generation = generation_of(view_.entry(*number).commit.load(std::memory_order_relaxed));
  Pins::touch(pins_.word(*number), generation, clock_.stamp());
  return true;
}

std::optional<std::uint64_t> SharedStoreReader::at_hand(std::string_view key) {
  const auto number = look<false>(key);
  if (!number) return 0;
  const IndexEntry& entry = view_.entry(*number);
  const std::size_t segment = unpack_location(entry.location.load(std::memory_order_relaxed)).segment;
  const std::uint64_t incarnation = incarnation_of(view_.segment_word(segment));
  if (incarnation == 0 || mapped(segment, incarnation) == nullptr) return std::nullopt;
  return unpack_extent(entry.extent.load(std::memory_order_relaxed)).bytes;
}

std::optional<std::uint32_t> SharedStoreReader::look_slowly(std::string_view key, std::uint64_t hash) {
  if (key.size() > kInlineKeyBytes) {  // equality of a long key is seen only under a pin
    Pin pin;
    if (find(key, pin) != Answer::kFound) return std::nullopt;
    return pins_.entry_of(*pin.word_);
  }
  for (int i = 0; i < kTries; ++i) {
    std::uint32_t found = 0;
    bool passed = false;  // see find_slowly()
    const IndexView::ProbeEnd end = view_.probe(hash, [&](std::uint32_t number) {
      found = number;
      passed = true;
      return holds(number, key, hash);
    });
    if (end == IndexView::ProbeEnd::kStopped) return found;
    if (end == IndexView::ProbeEnd::kMiss && !passed) return std::nullopt;
  }
  return std::nullopt;
}

bool SharedStoreReader::long_key_equals(const IndexEntry& entry, std::string_view key) {
  const auto stored = bytes_at(entry.key[0].load(std::memory_order_relaxed), key.size());
  return stored.size() == key.size() && std::memcmp(stored.data(), key.data(), key.size()) == 0;
}

Pin SharedStoreReader::adopt(std::uint32_t number, std::uint64_t generation) {
  Pin pin;
  adopt_into(pin, number, generation);
  return pin;
}

const SharedStoreReader::MappedSegment* SharedStoreReader::map_segment(std::uint32_t number) {
  MutexLock lock(segments_mutex_);
  const std::uint64_t incarnation = incarnation_of(view_.segment_word(number));
  MappedSegment* old = segments_[number].load(std::memory_order_relaxed);
  if (old != nullptr && old->incarnation == incarnation) return old;  // another thread was first
  auto mapped = [&]() -> Result<SegmentView> {
    NMC_ASSIGN_OR_RETURN(const UniqueFd fd, open_segment_(number));
    return SegmentView::open(fd.get(), {view_.boot_id(), number, incarnation});
  }();
  if (!mapped) {
    log_warning("store: segment {} is out of reach, what it holds is missed: {}", number, mapped.error().message);
    return nullptr;
  }
  auto segment = std::make_unique<MappedSegment>(MappedSegment{incarnation, *std::move(mapped)});
  segments_[number].store(segment.get(), std::memory_order_release);
  if (old != nullptr) retire_locked(old);
  return segment.release();
}

// Its number has another incarnation, so nobody has anything of it pinned.
void SharedStoreReader::retire_locked(MappedSegment* segment) {
  retired_.emplace_back(segment);
  const SegmentView unmapped = std::move(segment->view);
}

void SharedStoreReader::drop_stale_segments() {
  MutexLock lock(segments_mutex_);
  for (std::uint32_t number = 0; number < kSegmentsMax; ++number) {
    MappedSegment* segment = segments_[number].load(std::memory_order_relaxed);
    if (segment == nullptr || segment->incarnation == incarnation_of(view_.segment_word(number))) continue;
    segments_[number].store(nullptr, std::memory_order_relaxed);
    retire_locked(segment);
  }
}

void SharedStoreReader::touch(const Pin& pin) { Pins::touch(*pin.word_, pin.generation(), clock_.stamp()); }

std::uint64_t SharedStoreReader::pins_held() const {
  std::uint64_t held = 0;
  for (std::uint32_t entry = 0; entry < view_.entries_ready(); ++entry) {
    held += pin_count_of(pins_.word(entry).load(std::memory_order_relaxed));
  }
  return held;
}

}  // namespace nmc::store
