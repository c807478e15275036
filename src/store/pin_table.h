// A client's pin table: a shared file with two words an index entry, side by side: the pin word (pin_protocol.h), and
// the generation whose bytes this client has found right. They are written by their client; pin words are read by the
// master's evictor. Layout: docs/formats.md, "Shared memory".
//
// A client in a process of its own holds a POSIX record lock on its table for as long as it lives. The kernel takes the
// lock away when the process ends, however it ends, and a forked child doesn't inherit it: so a lock that is gone
// proves the death, and nothing else does.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "base/syscall.h"
#include "base/thread_number.h"
#include "store/pin_protocol.h"
#include "store/shared_files.h"

namespace nmc::store {

using SharedWord = std::atomic<std::uint64_t>;
static_assert(sizeof(SharedWord) == 8 && SharedWord::is_always_lock_free);

inline constexpr std::array<char, 8> kPinTableMagic = {'N', 'M', 'C', 'P', 'I', 'N', 'S', '1'};
inline constexpr std::uint32_t kPinTableVersion = 4;

// Lookups of a client's threads. Those of the first threads count each in a cell of their own, without a locked
// instruction; the others share the last cell.
struct alignas(64) LookupCell {
  SharedWord hits;  // that found their key
  SharedWord misses;

  SharedWord& word_for(bool hit) { return hit ? hits : misses; }
};
inline constexpr std::size_t kLookupCells = 32;

struct PinTableHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t boot_id;                  // of the index it belongs to
  std::uint32_t client;                   // number that the master gave
  std::uint32_t entry_count;              // as the index has at most
  std::uint64_t identity;                 // random: numbers are given again after a restart, this is not
  alignas(64) SharedWord over_limbo_cap;  // 1: set by the master; this client gets misses until it drops pins
  // Ticks at which the oldest of its puts began that are still at work; 0: none is. Places that the client was given
  // before are nobody's any more (their messages, or the answers, were lost), and the master takes them back.
  alignas(64) SharedWord oldest_put;
  alignas(64) std::array<LookupCell, kLookupCells> lookups;
  std::array<std::byte, 4096 - 192 - sizeof(lookups)> padding;
};
static_assert(sizeof(PinTableHeader) == 4096 && offsetof(PinTableHeader, over_limbo_cap) == 64 &&
              offsetof(PinTableHeader, oldest_put) == 128 && offsetof(PinTableHeader, lookups) == 192);

// A mapping of one table, read-write. Thread-safe as far as its words are; moves are not.
class PinTable {
 public:
  // A new table that *this owns, without memory for any word yet.
  static Result<PinTable> create(SharedFiles& files, const std::string& name, std::uint32_t client,
                                 std::uint32_t entry_count, std::uint64_t boot_id);
  // Maps an existing one. Checked: kind, version, sizes, that it belongs to `boot_id`.
  static Result<PinTable> open(UniqueFd fd, std::uint64_t boot_id);

  // Memory for the words of entries below `entries`.
  Result<void> reserve(std::uint32_t entries);

  // For the process whose table it is, once; it holds until the fd (and every other one it has of the file) is closed.
  Result<void> lock_for_life();
  // Whether some process other than this one holds the lock.
  bool locked_by_another() const;

  int fd() const { return fd_.get(); }
  std::uint32_t client() const { return client_; }
  std::uint64_t identity() const { return header_->identity; }
  std::uint32_t entry_count() const { return entry_count_; }
  PinTableHeader& header() const { return *header_; }
  // Counts a lookup of the calling thread.
  void count_lookup(bool hit) const {
    const std::uint32_t number = thread_number();
    if (number < kLookupCells - 1) [[likely]] {
      SharedWord& count = header_->lookups[number].word_for(hit);
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else {
      header_->lookups.back().word_for(hit).fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::uint64_t hits() const;
  std::uint64_t misses() const;
  // `entry` is below the index's entries_ready().
  SharedWord& word(std::uint32_t entry) const { return words_[std::size_t{entry} * kWordsAnEntry]; }
  SharedWord& verified(std::uint32_t entry) const { return words_[std::size_t{entry} * kWordsAnEntry + 1]; }
  std::uint32_t entry_of(const SharedWord& word) const {
    return static_cast<std::uint32_t>(static_cast<std::size_t>(&word - words_) / kWordsAnEntry);
  }
  static constexpr std::size_t kWordsAnEntry = 2;

 private:
  PinTable(UniqueFd fd, Mapping mapping);

  UniqueFd fd_;
  Mapping mapping_;
  PinTableHeader* header_;
  SharedWord* words_;
  std::uint32_t client_;  // copies: a damaged header can't move a checked bound
  std::uint32_t entry_count_;
};

// Stamps for touches: a clock of 1,024 ns ticks that never gives the same stamp twice to one client, so that uses have
// an order even where the clock stands. So the real clock is read coarsely (some milliseconds late, at a quarter of the
// cost): a lookup takes one stamp. Thread-safe (two threads at the same instant may get equal stamps).
class TouchClock {
 public:
  explicit TouchClock(const Clock& clock) : clock_(&clock), is_real_(&clock == &real_clock()) {}

  std::uint64_t stamp() {
    const std::uint64_t now = ticks();
    const std::uint64_t after_last = last_.load(std::memory_order_relaxed) + 1;
    const std::uint64_t stamp = after_last <= now ? now : after_last < now + kAheadMax ? after_last : now + kAheadMax;
    last_.store(stamp, std::memory_order_relaxed);
    return stamp;
  }
  std::uint64_t ticks() const {
    return static_cast<std::uint64_t>(is_real_ ? coarse_monotonic_ns() : clock_->now().count()) >> kTickShift;
  }

  // The same clock, read exactly: for a span whose end others know by clocks of their own. Never before ticks().
  std::uint64_t exact_ticks() const { return static_cast<std::uint64_t>(clock_->now().count()) >> kTickShift; }

  // A span of time in ticks.
  static std::uint64_t ticks_of(Nanos span) { return static_cast<std::uint64_t>(span.count()) >> kTickShift; }

  // The stamp whose low kTouchBits are `touch`, taken as one of the last twelve days.
  static std::uint64_t widen(std::uint64_t touch, std::uint64_t now) {
    const std::uint64_t latest = now + 2 * kAheadMax;  // other clients run ahead, too
    const std::uint64_t age = (latest - touch) & kTouchMask;
    return age <= latest ? latest - age : 0;
  }

 private:
  static std::int64_t coarse_monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // the origin of real_clock().now()
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  static constexpr int kTickShift = 10;
  static constexpr std::uint64_t kAheadMax = std::uint64_t{1} << 20;  // about a second

  const Clock* clock_;
  bool is_real_;
  alignas(64) std::atomic<std::uint64_t> last_{
      0};  // written with each use: who only reads the time isn't to wait for it
};

}  // namespace nmc::store
