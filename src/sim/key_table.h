// Names of blocks become small numbers in the order in which they first come, so that policies can keep what they know
// in arrays.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace nmc::sim {

// Open addressing over numbers, at most three quarters full: 8 bytes a key and 5 to 11 a slot. Not thread-safe.
class KeyTable {
 public:
  // The number of `key`, given now if it has none.
  std::uint32_t number_of(std::uint64_t key) {
    if (4 * (keys_.size() + 1) > 3 * slots_.size()) grow();
    for (std::size_t at = mix64(key) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const std::uint32_t number = slots_[at];
      if (number == kNone) {
        NMC_REQUIRE(keys_.size() < kNone, "keys={}", keys_.size());
        keys_.push_back(key);
        return slots_[at] = static_cast<std::uint32_t>(keys_.size() - 1);
      }
      if (keys_[number] == key) return number;
    }
  }

  std::span<const std::uint64_t> keys() const { return keys_; }  // by number
  std::size_t size() const { return keys_.size(); }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  void grow() {
    slots_.assign(slots_.empty() ? 1024 : 2 * slots_.size(), kNone);
    for (std::uint32_t number = 0; number < keys_.size(); ++number) {
      std::size_t at = mix64(keys_[number]) & (slots_.size() - 1);
      while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = number;
    }
  }

  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> slots_;  // a power of two of them
};

}  // namespace nmc::sim
