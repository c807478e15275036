// A client's side of the shared structures: finds keys in the index, pins them in its own table, and hands out views of
// a read-only mapping. No message, no lock. The embedded Store reads through one; another process maps the same files.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/index.h"
#include "store/pin_table.h"
#include "store/segment.h"
#include "store/store.h"

namespace nmc::store {

struct ClientFiles {
  std::uint32_t client = 0;
  int index = -1;
  int segment = -1;
  int pins = -1;
};

// Thread-safe. All pins go before it.
class SharedStoreReader {
 public:
  // Maps the files, which stay the caller's and may be closed. `clock` outlives this; all of a process's uses are
  // stamped by one. Errors: not ours, another version, files that don't belong together.
  static Result<std::unique_ptr<SharedStoreReader>> open(const ClientFiles& files, TouchClock& clock);

  // Pins the object. Nothing: a miss, or the index never held still while we looked. Bytes whose checksum is in the
  // index are verified once in this process's time with them; damage is a miss.
  std::optional<Pin> lookup(std::string_view key);
  // Whether it is readable now. A hint: nothing is held.
  bool contains(std::string_view key);

  // For those who have the master's lock to fall back on:
  enum class Answer {
    kFound,
    kMiss,
    kUnsettled,  // the index changed at every try; whoever can asks the master
  };
  Answer find(std::string_view key, Pin& pin);
  void count_lookup(bool hit);
  // The pin that the caller has already counted in this client's table.
  Pin adopt(std::uint32_t entry, std::uint64_t generation);
  void touch(const Pin& pin);
  const PinTable& pins() const { return pins_; }
  std::uint64_t pins_held() const;
  std::uint64_t damaged_found() const { return damaged_found_.load(std::memory_order_relaxed); }

 private:
  SharedStoreReader(Mapping index, const IndexView& view, SegmentView segment, PinTable pins, TouchClock& clock);

  enum class Step { kNext, kTaken, kChanged };
  Step try_entry(std::uint32_t number, std::string_view key, std::uint64_t hash, Pin& pin);
  bool long_key_equals(const IndexEntry& entry, std::string_view key) const;
  bool verify(const Pin& pin);

  Mapping index_;
  IndexView view_;
  SegmentView segment_;
  PinTable pins_;
  TouchClock& clock_;
  std::vector<std::atomic<std::uint64_t>> verified_;  // by entry: the generation whose bytes were right, relaxed
  std::atomic<std::uint64_t> damaged_found_{0};
};

}  // namespace nmc::store
