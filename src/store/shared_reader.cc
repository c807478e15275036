#include "store/shared_reader.h"

#include <sys/stat.h>

#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace nmc::store {
namespace {

constexpr int kTries = 16;

}  // namespace

void Pin::unpin() { Pins::unpin(*word_); }

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

SharedStoreReader::SharedStoreReader(Mapping index, const IndexView& view, SegmentView segment, PinTable pins,
                                     TouchClock& clock)
    : index_(std::move(index)),
      view_(view),
      segment_(std::move(segment)),
      pins_(std::move(pins)),
      clock_(clock),
      verified_(view_.entry_count()) {}

Result<std::unique_ptr<SharedStoreReader>> SharedStoreReader::open(const ClientFiles& files, TouchClock& clock) {
  struct stat info {};
  if (::fstat(files.index, &info) != 0) return Failure(os_error("stat", "index"));
  NMC_ASSIGN_OR_RETURN(Mapping index, Mapping::map(files.index, static_cast<std::size_t>(info.st_size),
                                                   Mapping::Access::kRead, "index"));
  NMC_ASSIGN_OR_RETURN(const IndexView view, IndexView::over(index.bytes()));
  NMC_ASSIGN_OR_RETURN(SegmentView segment, SegmentView::open(files.segment));
  NMC_ASSIGN_OR_RETURN(PinTable pins, PinTable::open(files.pins, view.boot_id()));
  if (pins.entry_count() < view.entry_count()) {
    return corrupt("pin table: {} entries, the index has {}", pins.entry_count(), view.entry_count());
  }
  return std::unique_ptr<SharedStoreReader>(
      new SharedStoreReader(std::move(index), view, std::move(segment), std::move(pins), clock));
}

std::optional<Pin> SharedStoreReader::lookup(std::string_view key) {
  Pin pin;
  const bool over_cap = pins_.header().over_limbo_cap.load(std::memory_order_relaxed) != 0;
  const bool hit = !over_cap && find(key, pin) == Answer::kFound && verify(pin);
  count_lookup(hit);
  if (!hit) return std::nullopt;
  return pin;
}

bool SharedStoreReader::verify(const Pin& pin) {
  const auto number = static_cast<std::size_t>(pin.word_ - &pins_.word(0));
  const IndexEntry& entry = view_.entry(static_cast<std::uint32_t>(number));
  if ((unpack_meta(entry.meta.load(std::memory_order_relaxed)).flags & kChecksumValid) == 0) return true;
  if (verified_[number].load(std::memory_order_relaxed) == pin.generation()) return true;
  if (checksum64(pin.bytes()) != entry.checksum.load(std::memory_order_relaxed)) {
    damaged_found_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  verified_[number].store(pin.generation(), std::memory_order_relaxed);
  return true;
}

bool SharedStoreReader::contains(std::string_view key) {
  const std::uint64_t hash = checksum64(key);
  if (key.size() > kInlineKeyBytes) {  // equality of a long key is seen only under a pin
    Pin pin;
    return find(key, pin) == Answer::kFound;
  }
  for (int i = 0; i < kTries; ++i) {
    const IndexView::ProbeEnd end = view_.probe(hash, [&](std::uint32_t number) {
      const IndexEntry& entry = view_.entry(number);
      const std::uint64_t seen = entry.commit.load(std::memory_order_acquire);
      return state_of(seen) == EntryState::kCommitted && entry_may_hold(entry, key, hash) &&
             entry.commit.load(std::memory_order_acquire) == seen;
    });
    if (end != IndexView::ProbeEnd::kFlipped) return end == IndexView::ProbeEnd::kStopped;
  }
  return false;
}

SharedStoreReader::Answer SharedStoreReader::find(std::string_view key, Pin& pin) {
  const std::uint64_t hash = checksum64(key);
  for (int i = 0; i < kTries; ++i) {
    Step last = Step::kNext;
    const IndexView::ProbeEnd end = view_.probe(hash, [&](std::uint32_t number) {
      last = try_entry(number, key, hash, pin);
      return last != Step::kNext;
    });
    if (last == Step::kTaken) return Answer::kFound;
    if (end == IndexView::ProbeEnd::kMiss) return Answer::kMiss;
  }
  return Answer::kUnsettled;
}

SharedStoreReader::Step SharedStoreReader::try_entry(std::uint32_t number, std::string_view key, std::uint64_t hash,
                                                     Pin& pin) {
  const IndexEntry& entry = view_.entry(number);
  // Acquire pairs with the master's publish: fields of this generation or a later one.
  const std::uint64_t seen = entry.commit.load(std::memory_order_acquire);
  if (state_of(seen) != EntryState::kCommitted || !entry_may_hold(entry, key, hash)) return Step::kNext;
  if (!Pins::pin(entry.commit, seen, pins_.word(number), clock_.stamp())) return Step::kChanged;
  pin = adopt(number, generation_of(seen));
  const bool ours = key.size() <= kInlineKeyBytes || long_key_equals(entry, key);
  if (ours && !pin.bytes().empty()) return Step::kTaken;
  pin = Pin();
  return Step::kNext;
}

bool SharedStoreReader::long_key_equals(const IndexEntry& entry, std::string_view key) const {
  const Location at = unpack_location(entry.key[0].load(std::memory_order_relaxed));
  const std::span<const std::byte> stored = segment_.bytes(at.offset, key.size());
  return at.segment == 0 && stored.size() == key.size() && std::memcmp(stored.data(), key.data(), key.size()) == 0;
}

// The entry is pinned, so its fields stand still; where they point is checked all the same.
Pin SharedStoreReader::adopt(std::uint32_t number, std::uint64_t generation) {
  const IndexEntry& entry = view_.entry(number);
  const Location at = unpack_location(entry.location.load(std::memory_order_relaxed));
  Pin pin;
  pin.word_ = &pins_.word(number);
  pin.generation_ = generation;
  if (at.segment == 0) pin.bytes_ = segment_.bytes(at.offset, entry.size.load(std::memory_order_relaxed));
  return pin;
}

void SharedStoreReader::touch(const Pin& pin) { Pins::touch(*pin.word_, pin.generation(), clock_.stamp()); }

std::uint64_t SharedStoreReader::pins_held() const {
  std::uint64_t held = 0;
  for (std::uint32_t entry = 0; entry < view_.entry_count(); ++entry) {
    held += pin_count_of(pins_.word(entry).load(std::memory_order_relaxed));
  }
  return held;
}

void SharedStoreReader::count_lookup(bool hit) {
  PinTableHeader& header = pins_.header();
  (hit ? header.hits : header.misses).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace nmc::store
