#include "http/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace nmc::http {
namespace {

// The rule, word for word and slowly.
struct Naive {
  std::string text;
  bool stopped = false;
};
Naive cut_at_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("abE"), "ab");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("E"), "EN");  // the last E may begin another
  EXPECT_EQ(matcher.push("x"), "Ex");
  EXPECT_EQ(matcher.push("EN"), "");
  EXPECT_EQ(matcher.flush(), "EN");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, NothingComesOutAfterTheStopString) {
  StopMatcher matcher({"\n\n", "Q:"});
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.push("\nb"), "");
  ASSERT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "\n\n");
  EXPECT_EQ(matcher.push("c"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, WithoutStopStringsAllGoesThroughAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, AgreesWithANaiveSearchHoweverTheTextIsCut) {
  Rng rng(1);
  int stopped = 0;
  for (int round = 0; round < 20'000; ++round) {
    // Two letters: overlaps and self-similar strings are the rule.
    const auto random_text = [&](std::uint64_t low, std::uint64_t high) {
      std::string text(low + rng.below(high - low + 1), ' ');
      for (char& c : text) c = static_cast<char>('a' + rng.below(2));
      return text;
    };
    std::vector<std::string> stops(rng.below(4));
    for (std::string& stop : stops) stop = random_text(1, 7);
    const std::string text = random_text(0, 40);

    StopMatcher matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + rng.below(5);
      out += matcher.push(std::string_view(text).substr(at, size));
      at += size;
    }
    out += matcher.flush();
    const Naive expected = cut_at_stop(text, stops);
    ASSERT_EQ(out, expected.text) << text << " stops: " << testing::PrintToString(stops);
    ASSERT_EQ(matcher.stopped(), expected.stopped);
    stopped += expected.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 1000);
  EXPECT_LT(stopped, 19'000);
}

TEST(StopMatcher, ShowsTheStopStringWhereThatIsAskedFor) {
  StopMatcher matcher({"END", "ND"}, /*include_stop=*/true);
  EXPECT_EQ(matcher.push("abE"), "ab");
  EXPECT_EQ(matcher.push("NDxy"), "END");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "END");
  EXPECT_EQ(matcher.push("z"), "");
}

}  // namespace
}  // namespace nmc::http
