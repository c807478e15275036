// A client's side of the shared structures: finds keys in the index, pins them in its own table, and hands out views of
// a read-only mapping. No message, no lock. The embedded Store reads through one; another process maps the same files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "store/index.h"
#include "store/pin_table.h"
#include "store/segment.h"
#include "store/store.h"

namespace nmc::store {

struct ClientFiles {
  std::uint32_t client = 0;
  UniqueFd index;
  UniqueFd pins;
  // The file of a segment that the index names. Called on any thread, one at a time; outlives the reader.
  std::function<Result<UniqueFd>(std::uint32_t segment)> open_segment;
};

// Thread-safe. All pins go before it.
class SharedStoreReader {
 public:
  // Maps the files; segments when an object leads there. `clock` outlives this; all of a process's uses are stamped by
  // one. Errors: not ours, another version, files that don't belong together.
  static Result<std::unique_ptr<SharedStoreReader>> open(ClientFiles files, TouchClock& clock);
  ~SharedStoreReader();

  static constexpr std::int64_t kMissed = -1, kTooLarge = -2;

  // Pins the object. Nothing: a miss, or the index never held still while we looked. Bytes whose checksum is in the
  // index are verified once in this process's time with them; damage is a miss.
  std::optional<Pin> lookup(std::string_view key);
  // Its size, without a look at its bytes; kMissed. Counts as a use.
  std::int64_t size_of(std::string_view key);
  // Whether it is readable now. A hint: nothing is held.
  bool contains(std::string_view key);
  // The same, and counts as a use.
  bool probe(std::string_view key);
  // How many bytes a lookup would have before it now, 0 for a miss; nothing if it would first ask for their segment.
  // As much a hint as contains().
  std::optional<std::uint64_t> at_hand(std::string_view key);
  // Copies the object into `to`, one span after the other, and verifies it on the way where lookup() would. Its size;
  // kMissed; or kTooLarge when it is larger than the spans, which then are untouched.
  std::int64_t copy(std::string_view key, std::span<const std::span<std::byte>> to);

  // For those who have the master's lock to fall back on:
  enum class Answer {
    kFound,
    kMiss,
    kUnsettled,  // the index changed at every try; whoever can asks the master
  };
  Answer find(std::string_view key, Pin& pin);
  void count_lookup(bool hit) { pins_.count_lookup(hit); }
  // The pin that the caller has already counted in this client's table.
  Pin adopt(std::uint32_t entry, std::uint64_t generation);
  void touch(const Pin& pin);
  const PinTable& pins() const { return pins_; }
  std::uint64_t pins_held() const;
  const IndexView& index() const { return view_; }
  // PinTable::lock_for_life(), of a client in a process of its own.
  Result<void> lock_for_life() { return pins_.lock_for_life(); }
  std::uint64_t damaged_found() const { return damaged_found_.load(std::memory_order_relaxed); }
  // Unmaps the segments that are gone. Now and then, for who lives long.
  void drop_stale_segments() NMC_EXCLUDES(segments_mutex_);

 private:
  struct MappedSegment {
    const std::uint64_t incarnation;
    SegmentView view;
  };

  SharedStoreReader(ClientFiles files, Mapping index, const IndexView& view, PinTable pins, TouchClock& clock);

  enum class Step { kNext, kTaken, kChanged };
  Answer find_slowly(std::string_view key, std::uint64_t hash, Pin& pin);
  std::optional<std::uint32_t> look_slowly(std::string_view key, std::uint64_t hash);
  // `pin` is empty, and stays so unless the step is kTaken.
  Step try_entry(std::uint32_t number, std::string_view key, std::uint64_t hash, Pin& pin);
  bool holds(std::uint32_t number, std::string_view key, std::uint64_t hash) const;
  void adopt_into(Pin& pin, std::uint32_t number, std::uint64_t generation);
  bool long_key_equals(const IndexEntry& entry, std::string_view key);
  // Bytes in a segment, of an entry that the caller has pinned: so the segment's number has no other incarnation
  // meanwhile. Empty: outside, or not to be had.
  std::span<const std::byte> bytes_at(std::uint64_t location, std::uint64_t size);
  // Of a number that the index knows; nullptr: not mapped yet in that incarnation.
  const MappedSegment* mapped(std::size_t number, std::uint64_t incarnation) const;
  const MappedSegment* map_segment(std::uint32_t number) NMC_EXCLUDES(segments_mutex_);
  void retire_locked(MappedSegment* segment) NMC_REQUIRES(segments_mutex_);
  // The checksum that a pinned object must have, unless it is known to be right.
  std::optional<std::uint64_t> unverified(const Pin& pin) const;
  bool settle(const Pin& pin, bool right);
  bool verify(const Pin& pin);
  template <bool kTouches>
  std::optional<std::uint32_t> look(std::string_view key);

  std::function<Result<UniqueFd>(std::uint32_t)> open_segment_;
  Mapping index_;
  IndexView view_;
  PinTable pins_;
  TouchClock& clock_;
  std::atomic<std::uint64_t> damaged_found_{0};

  Mutex segments_mutex_;  // of those who replace
  std::array<std::atomic<MappedSegment*>, kSegmentsMax> segments_{};
  // Unmapped, but a reader may still be looking at their number.
  std::vector<std::unique_ptr<MappedSegment>> retired_ NMC_GUARDED_BY(segments_mutex_);
};

}  // namespace nmc::store
