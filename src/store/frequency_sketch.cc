#include "store/frequency_sketch.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace nmc::store {
namespace {

constexpr std::size_t kWidthMin = 64, kWidthMax = std::size_t{1} << 22;
constexpr std::uint8_t kCountMax = 15;
constexpr std::uint64_t kAdditionsAnEntry = 10;

}  // namespace

FrequencySketch::FrequencySketch(std::size_t entries)
    : width_(std::bit_ceil(std::clamp(entries, kWidthMin / 2, kWidthMax / 2) * 2)),
      additions_max_(kAdditionsAnEntry * std::clamp(entries, kWidthMin / 2, kWidthMax)),
      counters_(kRows * width_) {}

std::size_t FrequencySketch::place(int row, std::uint64_t key) const {
  return static_cast<std::size_t>(row) * width_ +
         (keyed_random(key, static_cast<std::uint64_t>(row), 0) & (width_ - 1));
}

void FrequencySketch::add(std::uint64_t key) {
  for (int row = 0; row < kRows; ++row) {
    std::uint8_t& counter = counters_[place(row, key)];
    if (counter < kCountMax) ++counter;
  }
  if (++additions_ < additions_max_) return;
  for (std::uint8_t& counter : counters_) counter /= 2;
  additions_ /= 2;
}

std::uint32_t FrequencySketch::count(std::uint64_t key) const {
  std::uint8_t least = kCountMax;
  for (int row = 0; row < kRows; ++row) least = std::min(least, counters_[place(row, key)]);
  return least;
}

}  // namespace nmc::store
