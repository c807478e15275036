// About how often a key was seen lately, in memory that doesn't go with the number of keys.
#pragma once

#include <cstdint>
#include <vector>

namespace nmc::store {

// A count-min sketch of four rows with counters up to 15; after ten additions an expected entry all are halved, so that
// what was popular once is forgotten. Never too low but for halving, seldom too high. Not thread-safe.
class FrequencySketch {
 public:
  // For about so many entries of interest.
  explicit FrequencySketch(std::size_t entries);

  void add(std::uint64_t key);
  std::uint32_t count(std::uint64_t key) const;

 private:
  static constexpr int kRows = 4;
  std::size_t place(int row, std::uint64_t key) const;

  std::size_t width_;  // a power of two
  std::uint64_t additions_ = 0;
  std::uint64_t additions_max_;
  std::vector<std::uint8_t> counters_;  // row by row
};

}  // namespace nmc::store
