#include "model/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tokens in brackets, text as it is.
std::vector<std::string> parts(const AddedTokenMatcher& matcher, std::string_view text,
                               const std::vector<MarkerRange>& ranges) {
  std::vector<std::string> found;
  matcher.for_each_part(text, ranges, [&](const AddedTokenMatcher::Part& part) {
    const std::string shown(part.text);
    found.push_back(part.token == nullptr ? shown : "[" + shown + "]");
  });
  return found;
}

std::vector<std::string> parts(const AddedTokenMatcher& matcher, std::string_view text, bool parse_special = true) {
  return parts(matcher, text, std::vector<MarkerRange>{{text.size(), parse_special}});
}

TEST(AddedTokensTest, TheLongestWins) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "<a"}, {.id = 2, .content = "<ab>"}, {.id = 3, .content = "b"}});
  EXPECT_THAT(parts(matcher, "x<ab>y<a<ab b"), ElementsAre("x", "[<ab>]", "y", "[<a]", "[<a]", "[b]", " ", "[b]"));
  EXPECT_THAT(parts(matcher, ""), IsEmpty());
  EXPECT_THAT(parts(AddedTokenMatcher(), "plain"), ElementsAre("plain"));
}

TEST(AddedTokensTest, SpecialTokensAreTextUnlessAskedFor) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<t>"}});
  EXPECT_THAT(parts(matcher, "a<s><t>b"), ElementsAre("a", "[<s>]", "[<t>]", "b"));
  EXPECT_THAT(parts(matcher, "a<s><t>b", false), ElementsAre("a<s>", "[<t>]", "b"));
}

TEST(AddedTokensTest, ASpecialTokenLiesInsideOfOneRangeThatParsesIt) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "<s>", .special = true},
                                   {.id = 2, .content = "<s>>", .special = true},
                                   {.id = 3, .content = "x<s", .special = true},
                                   {.id = 4, .content = "ab"}});
  const auto ranges = [](std::initializer_list<MarkerRange> list) { return std::vector<MarkerRange>(list); };
  EXPECT_THAT(parts(matcher, "<s><s>", ranges({{3, false}, {6, true}})), ElementsAre("<s>", "[<s>]"));
  EXPECT_THAT(parts(matcher, "<s><s>", ranges({{3, true}, {6, false}})), ElementsAre("[<s>]", "<s>"));
  EXPECT_THAT(parts(matcher, "<s>", ranges({{1, true}, {3, true}})), ElementsAre("<s>"));
  // What a part ends or begins with doesn't take the neighbour's token away.
  EXPECT_THAT(parts(matcher, "x<s>", ranges({{1, false}, {4, true}})), ElementsAre("x", "[<s>]"));
  EXPECT_THAT(parts(matcher, "<s>>", ranges({{3, true}, {4, false}})), ElementsAre("[<s>]", ">"));
  EXPECT_THAT(parts(matcher, "<s>>", ranges({{4, true}})), ElementsAre("[<s>>]"));
  // Other added tokens are found in any text, so also across parts.
  EXPECT_THAT(parts(matcher, "abab", ranges({{1, false}, {3, true}, {4, false}})), ElementsAre("[ab]", "[ab]"));
  EXPECT_THAT(parts(matcher, "a", ranges({{0, true}, {1, false}})), ElementsAre("a"));
}

TEST(AddedTokensTest, RangesOfASection) {
  const std::vector<MarkerRange> ranges = {{2, true}, {5, false}, {9, true}};
  const auto ends = [&](std::size_t begin, std::size_t bytes) {
    std::vector<std::size_t> found;
    for (const MarkerRange& range : ranges_within(ranges, begin, bytes)) found.push_back(range.end);
    return found;
  };
  EXPECT_THAT(ends(0, 9), ElementsAre(2, 5, 9));
  EXPECT_THAT(ends(1, 4), ElementsAre(1, 4));
  EXPECT_THAT(ends(2, 3), ElementsAre(3));
  EXPECT_THAT(ends(4, 2), ElementsAre(1, 2));
}

TEST(AddedTokensTest, StrippingSwallowsSpaceOnThatSide) {
  const AddedTokenMatcher left({{.id = 1, .content = "<m>", .lstrip = true}});
  EXPECT_THAT(parts(left, "a \u3000<m> <m>b"), ElementsAre("a", "[ \u3000<m>]", "[ <m>]", "b"));
  const AddedTokenMatcher right({{.id = 1, .content = "<m>", .rstrip = true}});
  EXPECT_THAT(parts(right, "a <m> \n<m>b "), ElementsAre("a ", "[<m> \n]", "[<m>]", "b "));
}

TEST(AddedTokensTest, ASingleWordTouchesNoWordCharacter) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "word", .single_word = true}});
  EXPECT_THAT(parts(matcher, "word swords word_ (word) éword"),
              ElementsAre("[word]", " swords word_ (", "[word]", ") éword"));
}

TEST(AddedTokensTest, TimeIsLinearInTheText) {
  const AddedTokenMatcher matcher({{.id = 1, .content = " ", .lstrip = true, .rstrip = true},
                                   {.id = 2, .content = std::string(kAddedTokenBytesMax, 'a')}});
  const auto count = [&](const std::string& text) {
    std::size_t parts = 0;
    matcher.for_each_part(text, std::vector<MarkerRange>{{text.size(), true}},
                          [&](const AddedTokenMatcher::Part&) { ++parts; });
    return parts;
  };
  EXPECT_EQ(count(std::string(300'000, ' ')), 300'000u);
  EXPECT_EQ(count(std::string(100'000, 'a')), 100'000u / kAddedTokenBytesMax + 1);
}

}  // namespace
}  // namespace nmc::model
