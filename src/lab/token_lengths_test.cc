#include "lab/token_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

TokenLengths parsed(std::string_view text) {
  auto lengths = TokenLengths::parse(text);
  EXPECT_TRUE(lengths.has_value()) << text;
  return lengths ? *lengths : TokenLengths(1);
}

TEST(TokenLengthsTest, FixedIsAlwaysThatAndARangeReachesBothEnds) {
  EXPECT_EQ(parsed("512").draw(1, 2, 3), 512u);
  std::set<std::size_t> seen;
  for (std::size_t i = 0; i < 1000; ++i) seen.insert(parsed("3-6").draw(1, 2, i));
  EXPECT_EQ(seen, (std::set<std::size_t>{3, 4, 5, 6}));
}

TEST(TokenLengthsTest, LogNormalHasItsMedianItsDeviationAndItsLimit) {
  const TokenLengths lengths = parsed("lognormal:1000:0.5:4000");
  std::vector<double> logs;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t tokens = lengths.draw(9, 0, i);
    ASSERT_GE(tokens, 1u);
    ASSERT_LE(tokens, 4000u);
    logs.push_back(std::log(static_cast<double>(tokens)));
  }
  std::sort(logs.begin(), logs.end());
  EXPECT_NEAR(std::exp(logs[10'000]), 1000, 20);
  // 16 % and 84 % lie a deviation to either side, far from the limit.
  EXPECT_NEAR((logs[16'827] - logs[3'173]) / 2, 0.5, 0.02);
}

TEST(TokenLengthsTest, TextGoesThereAndBack) {
  for (const char* text : {"512", "128-1024", "lognormal:1000:0.5:4000"}) EXPECT_EQ(parsed(text).to_string(), text);
}

TEST(TokenLengthsTest, AnythingElseIsRefusedWithTheForms) {
  for (const char* text : {"", "0", "-5", "5-", "7-3", "x", "1e3", "99999999999", "lognormal:", "lognormal:5:1",
                           "lognormal:5:-1:9", "lognormal:10:1:9", "lognormal:5:nan:9"}) {
    const auto lengths = TokenLengths::parse(text);
    ASSERT_FALSE(lengths.has_value()) << text;
    EXPECT_THAT(lengths.error().message, HasSubstr("lognormal:MEDIAN:SIGMA:MAX"));
  }
}

}  // namespace
}  // namespace nmc::lab
