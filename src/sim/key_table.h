// Names of blocks become small numbers in the order in which they first come, so that policies can keep what they know
// in arrays.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/syscall.h"

namespace nmc::sim {

// Open addressing over numbers, at most three quarters full: 8 bytes a key and 11 to 21 for its slot, which holds half
// of the key's hash, too, so that a key is read only where it is very likely the one. Slots lie in huge pages where the
// system has them: of a large table each look is a page of its own. Not thread-safe.
class KeyTable {
 public:
  // The number of `key`, given now if it has none.
  std::uint32_t number_of(std::uint64_t key) {
    if (4 * (keys_.size() + 1) > 3 * slots_.size()) grow();
    const std::uint64_t hash = mix64(key);
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.count == 0) {
        NMC_REQUIRE(keys_.size() < std::numeric_limits<std::uint32_t>::max(), "keys={}", keys_.size());
        keys_.push_back(key);
        slot = {static_cast<std::uint32_t>(keys_.size()), tag_of(hash)};
        return slot.count - 1;
      }
      if (slot.tag == tag_of(hash) && keys_[slot.count - 1] == key) return slot.count - 1;
    }
  }

  // Asks memory for what number_of(key) will read, so that several keys' reads overlap.
  void prefetch(std::uint64_t key) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[mix64(key) & (slots_.size() - 1)]);
  }

  std::span<const std::uint64_t> keys() const { return keys_; }  // by number
  std::size_t size() const { return keys_.size(); }

 private:
  struct Slot {
    std::uint32_t count;  // number + 1; 0: empty, as fresh memory is
    std::uint32_t tag;
  };
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  void grow() {
    const std::size_t count = slots_.empty() ? 1024 : 2 * slots_.size();
    slots_ = {};
    memory_ = Mapping();
    Result<Mapping> memory = Mapping::anonymous(count * sizeof(Slot));
    NMC_REQUIRE(memory.has_value(), "slots={}: {}", count, memory.error().message);
    memory_ = std::move(*memory);
    slots_ = std::span(reinterpret_cast<Slot*>(memory_.data()), count);
    for (std::uint32_t number = 0; number < keys_.size(); ++number) {
      const std::uint64_t hash = mix64(keys_[number]);
      std::size_t at = hash & (count - 1);
      while (slots_[at].count != 0) at = (at + 1) & (count - 1);
      slots_[at] = {number + 1, tag_of(hash)};
    }
  }

  std::vector<std::uint64_t> keys_;
  Mapping memory_;
  std::span<Slot> slots_;  // in memory_; a power of two of them
};

}  // namespace nmc::sim
