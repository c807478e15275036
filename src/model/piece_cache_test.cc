#include "model/piece_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace nmc::model {
namespace {

TEST(PieceCacheTest, FindsWhatWasPutAfterGrowing) {
  PieceCache cache;
  const auto piece = [](std::uint32_t i) { return "piece " + std::to_string(i); };
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    const PieceCache::Place place = cache.place_of(piece(i));
    ASSERT_FALSE(cache.at(place)) << i;
    cache.put(place, piece(i), {i, i + 1});
  }
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    const auto range = cache.at(cache.place_of(piece(i)));
    ASSERT_TRUE(range) << i;
    EXPECT_EQ(range->begin, i);
    EXPECT_EQ(range->size, i + 1);
  }
  EXPECT_FALSE(cache.at(cache.place_of("piece")));
  EXPECT_FALSE(cache.at(cache.place_of("")));
}

}  // namespace
}  // namespace nmc::model
