#include "store/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/rng.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t kBlock = 256;

bool overlap(const Place& a, const Place& b) { return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes; }

TEST(SegmentSpaceTest, EveryBlockFitsAndEmptyExtentsGoBack) {
  SegmentSpace space(100 * kBlock + 64, kBlock);
  EXPECT_EQ(space.blocks_total(), 100u);
  std::vector<Place> places;
  while (const auto place = space.take_block(static_cast<std::uint32_t>(places.size()))) places.push_back(*place);
  EXPECT_EQ(places.size(), 100u);
  EXPECT_FALSE(space.take_bytes(kBlock, 1000));
  for (const Place& place : places) space.give(place);
  EXPECT_EQ(space.used_bytes(), 0u);
  EXPECT_TRUE(space.take_bytes(100 * kBlock + 64, 0));
}

TEST(SegmentSpaceTest, BlocksUseHolesThatAreTooSmallForAWholeExtent) {
  SegmentSpace space(128 * kBlock, kBlock);  // extents of 4
  std::vector<Place> objects;
  for (std::uint32_t i = 0; i < 64; ++i) objects.push_back(space.take_bytes(2 * kBlock, i).value());
  for (std::uint32_t i = 0; i < 64; i += 2) space.give(objects[i]);
  std::size_t blocks = 0;
  while (space.take_block(100 + static_cast<std::uint32_t>(blocks))) ++blocks;
  EXPECT_EQ(blocks, 64u);
}

// Random places beside a list of them: no overlap, no leak, and the two questions that eviction asks are answered
// right.
class RandomSpaceTest : public testing::Test {
 protected:
  void take(bool block, std::uint64_t bytes) {
    const std::uint32_t entry = next_++;
    const auto place = block ? space_.take_block(entry) : space_.take_bytes(bytes, entry);
    if (!place) return;
    for (const auto& [other, held] : places_) ASSERT_FALSE(overlap(*place, held)) << entry << " and " << other;
    ASSERT_LE(place->offset + place->bytes, space_.capacity());
    places_[entry] = *place;
  }
  void give(std::uint32_t entry) {
    space_.give(places_.at(entry));
    places_.erase(entry);
  }
  bool fixed(std::uint32_t entry) const { return mix64(entry) % 8 == 0; }
  std::uint64_t stamp(std::uint32_t entry) const { return 1 + mix64(entry + 1000) % 1000; }

  std::uint64_t used() const {
    std::uint64_t used = 0;
    for (const auto& [entry, place] : places_) used += place.bytes;
    return used;
  }

  // The lowest newest stamp over all stretches of `bytes` that begin at some place's edge.
  std::optional<std::uint64_t> best_stretch(std::uint64_t bytes) const {
    std::set<std::uint64_t> starts = {0};
    for (const auto& [entry, place] : places_) {
      starts.insert(place.offset + place.bytes);
      starts.insert(place.offset);
    }
    std::optional<std::uint64_t> best;
    for (const std::uint64_t start : starts) {
      if (start + bytes > space_.capacity()) continue;
      const Place stretch{start, bytes, false, 0, 0};
      std::uint64_t newest = 0;
      bool can_go = true;
      for (const auto& [entry, place] : places_) {
        if (!overlap(stretch, place)) continue;
        can_go = can_go && !fixed(entry);
        newest = std::max(newest, stamp(entry));
      }
      if (can_go && (!best || newest < *best)) best = newest;
    }
    return best;
  }

  SegmentSpace space_{64 * kBlock, kBlock};
  std::map<std::uint32_t, Place> places_;
  std::uint32_t next_ = 0;
};

TEST_F(RandomSpaceTest, PlacesNeverOverlapAndAllComesBack) {
  constexpr std::uint64_t kSeed = 7;
  std::cout << "seed " << kSeed << "\n";
  Rng rng(kSeed);
  for (int i = 0; i < 20000; ++i) {
    if (rng.below(2) == 0)
      take(rng.below(2) == 0, 1 + rng.below(4 * kBlock));
    else if (!places_.empty())
      give(std::next(places_.begin(), static_cast<long>(rng.below(places_.size())))->first);
    ASSERT_TRUE(i % 64 != 0 || space_.used_bytes() == used()) << i;
    if (HasFatalFailure()) return;
  }
  while (!places_.empty()) give(places_.begin()->first);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_TRUE(space_.take_bytes(space_.capacity(), 0));
}

TEST_F(RandomSpaceTest, BlocksPossibleIsWhatEvictingAllThatCanGoGives) {
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 20; ++i) take(rng.below(2) == 0, 1 + rng.below(6 * kBlock));
    const std::uint64_t promised = space_.blocks_possible([this](std::uint32_t entry) { return !fixed(entry); });
    for (auto it = places_.begin(); it != places_.end();) {
      const std::uint32_t entry = (it++)->first;
      if (!fixed(entry)) give(entry);
    }
    std::vector<Place> blocks;
    while (const auto place = space_.take_block(1'000'000 + static_cast<std::uint32_t>(blocks.size())))
      blocks.push_back(*place);
    // Extents that empty out may join what lies beside them, so it can be a little more.
    ASSERT_GE(blocks.size(), promised) << round;
    ASSERT_LE(blocks.size(), promised + places_.size() + 1) << round;
    for (const Place& place : blocks) space_.give(place);
    if (round % 3 == 0) {
      while (!places_.empty()) give(places_.begin()->first);
    }
  }
}

TEST_F(RandomSpaceTest, WhatLiesInTheWayIsTheColdestStretchAndItsLeavingMakesRoom) {
  Rng rng(13);
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    take(false, 1 + rng.below(6 * kBlock));  // objects only: a stretch may begin at any of their edges
    if (rng.below(4) == 0 && !places_.empty()) give(places_.begin()->first);
    const std::uint64_t bytes = OffsetAllocator::round_up(1 + rng.below(12 * kBlock));
    const auto in_the_way = space_.entries_in_the_way(
        bytes, [this](std::uint32_t entry) { return fixed(entry) ? std::nullopt : std::optional(stamp(entry)); });
    const auto best = best_stretch(bytes);
    ASSERT_EQ(in_the_way.has_value(), best.has_value()) << round;
    if (!best) {
      while (!places_.empty()) give(places_.begin()->first);
      continue;
    }
    std::uint64_t newest = 0;
    for (const std::uint32_t entry : *in_the_way) newest = std::max(newest, stamp(entry));
    ASSERT_EQ(newest, *best) << round;
    for (const std::uint32_t entry : *in_the_way) give(entry);
    const auto place = space_.take_bytes(bytes, next_);
    ASSERT_TRUE(place) << round;
    space_.give(*place);
    ++found;
  }
  EXPECT_GT(found, 1000);
}

TEST_F(RandomSpaceTest, BlocksInTheWayLeaveTogether) {
  for (int i = 0; i < 64; ++i) take(true, 0);
  const auto in_the_way =
      space_.entries_in_the_way(3 * kBlock, [this](std::uint32_t entry) { return std::optional(stamp(entry)); });
  ASSERT_TRUE(in_the_way);
  for (const std::uint32_t entry : *in_the_way) give(entry);
  EXPECT_TRUE(space_.take_bytes(3 * kBlock, next_));
}

}  // namespace
}  // namespace nmc::store
