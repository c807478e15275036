#include "model/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tokens in brackets, text as it is.
std::vector<std::string> parts(const AddedTokenMatcher& matcher, std::string_view text, bool parse_special = true) {
  std::vector<std::string> found;
  matcher.for_each_part(text, parse_special, [&](const AddedTokenMatcher::Part& part) {
    const std::string shown(part.text);
    found.push_back(part.token == nullptr ? shown : "[" + shown + "]");
  });
  return found;
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
    matcher.for_each_part(text, true, [&](const AddedTokenMatcher::Part&) { ++parts; });
    return parts;
  };
  EXPECT_EQ(count(std::string(300'000, ' ')), 300'000u);
  EXPECT_EQ(count(std::string(100'000, 'a')), 100'000u / kAddedTokenBytesMax + 1);
}

}  // namespace
}  // namespace nmc::model
