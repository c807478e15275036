#include "store/allocator.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <vector>

#include "base/rng.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t kUnit = OffsetAllocator::kAlignment;

// Chunks cover the capacity in order, and free ones never touch.
void expect_sound(const OffsetAllocator& allocator) {
  std::uint64_t end = 0, free = 0;
  bool previous_free = false;
  for (auto at = allocator.first_chunk(); at != OffsetAllocator::kNone; at = allocator.next_chunk(at)) {
    const OffsetAllocator::Chunk chunk = allocator.chunk(at);
    ASSERT_EQ(chunk.offset, end);
    ASSERT_GT(chunk.bytes, 0u);
    ASSERT_FALSE(previous_free && !chunk.used) << "at " << chunk.offset;
    end += chunk.bytes;
    if (!chunk.used) free += chunk.bytes;
    previous_free = !chunk.used;
  }
  ASSERT_EQ(end, allocator.capacity());
  ASSERT_EQ(free, allocator.free_bytes());
}

TEST(OffsetAllocatorTest, CapacityIsFullyUsable) {
  OffsetAllocator allocator(100 * kUnit + 7);
  EXPECT_EQ(allocator.capacity(), 100 * kUnit);
  std::vector<std::uint32_t> chunks;
  for (int i = 0; i < 100; ++i) {
    const auto side = i % 2 == 0 ? OffsetAllocator::Side::kLow : OffsetAllocator::Side::kHigh;
    chunks.push_back(allocator.take(1, side, 0).value().chunk);
  }
  EXPECT_EQ(allocator.free_bytes(), 0u);
  EXPECT_FALSE(allocator.take(1, OffsetAllocator::Side::kLow, 0));
  for (const std::uint32_t chunk : chunks) allocator.give(chunk);
  expect_sound(allocator);
  EXPECT_EQ(allocator.take(100 * kUnit, OffsetAllocator::Side::kHigh, 0).value().offset, 0u);
}

TEST(OffsetAllocatorTest, SidesGrowFromTheirEnds) {
  OffsetAllocator allocator(16 * kUnit);
  EXPECT_EQ(allocator.take(kUnit, OffsetAllocator::Side::kLow, 1).value().offset, 0u);
  EXPECT_EQ(allocator.take(kUnit, OffsetAllocator::Side::kHigh, 2).value().offset, 15 * kUnit);
  EXPECT_EQ(allocator.take(kUnit, OffsetAllocator::Side::kLow, 3).value().offset, kUnit);
}

TEST(OffsetAllocatorTest, RestoredRangesAreInUseAndCanBeGivenBack) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    constexpr std::uint64_t kUnits = 64;
    std::vector<OffsetAllocator::Range> ranges;
    for (std::uint64_t at = rng.below(3); at < kUnits;) {
      const std::uint64_t units = 1 + rng.below(5);
      if (at + units > kUnits) break;
      ranges.push_back({at * kUnit, units * kUnit, at});
      at += units + rng.below(3);
    }
    OffsetAllocator allocator(kUnits * kUnit);
    const std::vector<std::uint32_t> chunks = allocator.restore(ranges);
    ASSERT_EQ(chunks.size(), ranges.size());
    expect_sound(allocator);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const OffsetAllocator::Chunk chunk = allocator.chunk(chunks[i]);
      ASSERT_TRUE(chunk.used);
      ASSERT_EQ(chunk.offset, ranges[i].offset);
      ASSERT_EQ(chunk.bytes, ranges[i].bytes);
      ASSERT_EQ(chunk.owner, ranges[i].owner);
    }
    for (const std::uint32_t chunk : chunks) allocator.give(chunk);
    expect_sound(allocator);
    ASSERT_EQ(allocator.free_bytes(), allocator.capacity());
  }
}

TEST(OffsetAllocatorTest, TooMuchIsRefused) {
  OffsetAllocator empty(0);
  EXPECT_FALSE(empty.take(1, OffsetAllocator::Side::kLow, 0));
  OffsetAllocator allocator(4 * kUnit);
  EXPECT_FALSE(allocator.take(~std::uint64_t{0}, OffsetAllocator::Side::kLow, 0));
  EXPECT_FALSE(allocator.take(4 * kUnit + 1, OffsetAllocator::Side::kLow, 0));
}

// The naive model: used ranges in a map.
class Model {
 public:
  explicit Model(std::uint64_t capacity) : capacity_(capacity) {}
  void take(std::uint64_t offset, std::uint64_t bytes) {
    const auto next = used_.lower_bound(offset);
    ASSERT_TRUE(next == used_.end() || offset + bytes <= next->first) << "overlaps the one after";
    ASSERT_TRUE(next == used_.begin() || std::prev(next)->first + std::prev(next)->second <= offset) << "overlaps";
    ASSERT_LE(offset + bytes, capacity_);
    used_[offset] = bytes;
  }
  void give(std::uint64_t offset) { used_.erase(offset); }
  std::uint64_t largest_gap() const {
    std::uint64_t end = 0, largest = 0;
    for (const auto& [offset, bytes] : used_) {
      largest = std::max(largest, offset - end);
      end = offset + bytes;
    }
    return std::max(largest, capacity_ - end);
  }

 private:
  std::uint64_t capacity_;
  std::map<std::uint64_t, std::uint64_t> used_;
};

TEST(OffsetAllocatorTest, AgreesWithANaiveModelUnderRandomUse) {
  constexpr std::uint64_t kSeed = 20240611;
  std::cout << "seed " << kSeed << "\n";
  Rng rng(kSeed);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t capacity = (1 + rng.below(2000)) * kUnit;
    OffsetAllocator allocator(capacity);
    Model model(capacity);
    std::vector<OffsetAllocator::Piece> held;
    for (int i = 0; i < 2000; ++i) {
      if (held.empty() || rng.below(100) < 55) {
        const std::uint64_t bytes = 1 + rng.below(rng.below(4) == 0 ? capacity : 40 * kUnit);
        const auto side = rng.below(2) == 0 ? OffsetAllocator::Side::kLow : OffsetAllocator::Side::kHigh;
        const auto piece = allocator.take(bytes, side, i);
        ASSERT_EQ(piece.has_value(), OffsetAllocator::round_up(bytes) <= model.largest_gap()) << bytes;
        if (!piece) continue;
        ASSERT_EQ(piece->offset % kUnit, 0u);
        ASSERT_EQ(allocator.chunk(piece->chunk).owner, static_cast<std::uint64_t>(i));
        ASSERT_EQ(allocator.chunk(piece->chunk).bytes, OffsetAllocator::round_up(bytes));
        model.take(piece->offset, OffsetAllocator::round_up(bytes));
        held.push_back(*piece);
      } else {
        const std::size_t which = rng.below(held.size());
        allocator.give(held[which].chunk);
        model.give(held[which].offset);
        held[which] = held.back();
        held.pop_back();
      }
      if (i % 16 == 0) expect_sound(allocator);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const auto& piece : held) allocator.give(piece.chunk);
    EXPECT_EQ(allocator.free_bytes(), capacity);
    EXPECT_TRUE(allocator.take(capacity, OffsetAllocator::Side::kLow, 0));
  }
}

}  // namespace
}  // namespace nmc::store
