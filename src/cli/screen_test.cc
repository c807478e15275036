#include "cli/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/output.h"

namespace nmc::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Line, PadsByColumnsNotBytes) {
  Line line;
  line.left("…é", 4).add("|").right("█", 3);
  EXPECT_EQ(line.render(80, false), "…é  |  █");
  EXPECT_EQ(line.width(), 8u);
}

TEST(Line, IsCutAtTheScreensEdge) {
  Line line;
  line.add("ab", Style::kBlue).add("█é", Style::kOrange).add("z");
  for (std::size_t columns = 0; columns <= 6; ++columns) {
    EXPECT_EQ(display_width(line.render(columns, false)), std::min<std::size_t>(columns, 5)) << columns;
  }
  EXPECT_EQ(line.render(3, false), "ab█");
}

TEST(Line, ColoursAreClosedAndOnlyOnDemand) {
  Line line;
  line.add("ab", Style::kBlue);
  EXPECT_EQ(line.render(1, true), "\x1b[38;5;69ma\x1b[0m");
  EXPECT_EQ(line.render(2, false), "ab");
}

TEST(Line, WhatComesFromOutsideCannotDriveTheTerminal) {
  Line line;
  line.add("a\x1b]0;owned\x07\r\n");
  EXPECT_THAT(line.render(80, true), Not(HasSubstr("\x1b")));
  EXPECT_THAT(line.render(80, true), Not(HasSubstr("\n")));
}

TEST(ShareOut, GivesEachItsShareAndNoneNothing) {
  const auto shares = [](std::vector<double> counts, std::size_t cells) { return share_out(counts, cells); };
  EXPECT_THAT(shares({1, 1, 2}, 8), ElementsAre(2, 2, 4));
  EXPECT_THAT(shares({1, 0, 100'000}, 10), ElementsAre(1, 0, 9));  // little is not nothing
  EXPECT_THAT(shares({1, 1, 1}, 2), ElementsAre(0, 1, 1));
  EXPECT_THAT(shares({0, 0}, 5), ElementsAre(0, 0));
  EXPECT_THAT(shares({1, 0}, 3), ElementsAre(3, 0));
}

TEST(Sparkline, ScalesToTheLargestAndLeavesGaps) {
  const auto draw = [](std::vector<std::optional<double>> values) { return sparkline(values); };
  EXPECT_EQ(draw({0.0, 7.0, std::nullopt, 3.5}), "▁█ ▅");
  EXPECT_EQ(draw({0.0, 0.0}), "▁▁");
  EXPECT_EQ(draw({}), "");
}

TEST(Figures, HaveThreeDigitsThatCount) {
  EXPECT_EQ(decimal(0.0879), "0.088");
  EXPECT_EQ(decimal(1.25), "1.25");
  EXPECT_EQ(decimal(34.54), "34.5");
  EXPECT_EQ(decimal(1234.4), "1,234");
  EXPECT_EQ(decimal(0.0), "0");
  EXPECT_EQ(decimal(std::nullopt), "-");
  EXPECT_EQ(whole(1'234'567.0), "1,234,567");
  EXPECT_EQ(whole(-1234.0), "-1,234");
  EXPECT_EQ(percent(1.0, 3), "33.3 %");
  EXPECT_EQ(percent(3.0, 3), "100 %");
  EXPECT_EQ(percent(0.0, 0), "-");
}

}  // namespace
}  // namespace nmc::cli
