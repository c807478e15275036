#include "model/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> matches(const Regex& regex, std::string_view text) {
  std::vector<std::string> found;
  Regex::Search search(regex, text);
  while (const auto match = search.next()) found.emplace_back(text.substr(match->begin, match->end - match->begin));
  return found;
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << pattern << ": " << regex.error().message;
  return regex ? matches(*regex, text) : std::vector<std::string>();
}

TEST(RegexTest, MatchesLeftmostAndInOrderOfAlternatives) {
  EXPECT_THAT(matches("a|ab|b", "xabab"), ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(matches("ab|a", "abaa"), ElementsAre("ab", "a", "a"));
  EXPECT_THAT(matches("(a|b)c", "acbcc"), ElementsAre("ac", "bc"));
  EXPECT_THAT(matches("x", "abc"), IsEmpty());
  EXPECT_THAT(matches("x", ""), IsEmpty());
}

TEST(RegexTest, RepeatsGreedilyLazilyOrPossessively) {
  EXPECT_THAT(matches("a+b?", "aaab aa"), ElementsAre("aaab", "aa"));
  EXPECT_THAT(matches("a*b", "aaab b"), ElementsAre("aaab", "b"));
  EXPECT_THAT(matches("a{2,3}", "aaaaaa a aa"), ElementsAre("aaa", "aaa", "aa"));
  EXPECT_THAT(matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(matches("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(matches("a{2,}", "aaaa a"), ElementsAre("aaaa"));
  EXPECT_THAT(matches("a+?", "aa"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("a.*?c", "abcbc"), ElementsAre("abc"));
  EXPECT_THAT(matches("a++a", "aaa"), IsEmpty());
  EXPECT_THAT(matches("a?+ab", "ab aab"), ElementsAre("aab"));
  EXPECT_THAT(matches("(?:ab)++ab", "ababab"), IsEmpty());
  EXPECT_THAT(matches("(?:ab)+ab", "ababab"), ElementsAre("ababab"));
  EXPECT_THAT(matches("(?>a+)b", "aab"), ElementsAre("aab"));
  // After an interval a plus sign repeats it.
  EXPECT_THAT(matches("a{1,2}+b", "aaaab"), ElementsAre("aaaab"));
}

TEST(RegexTest, GivesBackCharactersNotBytes) {
  EXPECT_THAT(matches("é+éx", "ééx"), ElementsAre("ééx"));
  EXPECT_THAT(matches(R"(\s+(?!\S))", "\u3000\u3000a"), ElementsAre("\u3000"));
}

TEST(RegexTest, LooksAhead) {
  EXPECT_THAT(matches("a(?=b)", "ab ac"), ElementsAre("a"));
  EXPECT_THAT(matches("a(?!b)", "ab ac"), ElementsAre("a"));
  EXPECT_THAT(matches("a(?!b|c)", "ab ac ad a"), ElementsAre("a", "a"));
}

TEST(RegexTest, KnowsPlaces) {
  EXPECT_THAT(matches("^a", "a a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("a$", "a\na a"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("\\Aa", "a\na"), ElementsAre("a"));
  EXPECT_THAT(matches("a\\z", "a\na"), ElementsAre("a"));
}

TEST(RegexTest, SetsAreThoseOfUnicode) {
  EXPECT_THAT(matches(R"(\p{L}+)", "aé世 1"), ElementsAre("aé世"));
  EXPECT_THAT(matches(R"(\p{N})", "1½٣"), ElementsAre("1", "½", "٣"));
  EXPECT_THAT(matches(R"(\p{Lu}\p{Ll}+)", "Ab ÉcoleX"), ElementsAre("Ab", "École"));
  EXPECT_THAT(matches(R"(\P{L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(matches(R"(\p{^L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(matches(R"([^\s\p{L}\p{N}]+)", "a,! b3;"), ElementsAre(",!", ";"));
  EXPECT_THAT(matches(R"([^\S\n]+)", "a \t\n b"), ElementsAre(" \t", " "));
  EXPECT_THAT(matches(R"(\s+)", "a\u00a0\u3000b\u180ec\u200bd"), ElementsAre("\u00a0\u3000"));
  EXPECT_THAT(matches(R"(\d+)", "12½"), ElementsAre("12"));
  EXPECT_THAT(matches(R"(\D+\W)", "ab 1!"), ElementsAre("ab "));
  EXPECT_THAT(matches("[a-c一-龥-]+", "ab-世d"), ElementsAre("ab-世"));
  EXPECT_THAT(matches(R"([\[\]\\^-]+)", "a[]\\^-b"), ElementsAre("[]\\^-"));
  EXPECT_THAT(matches(R"([\x41\u0042\x{1F600}]+)", "AB😀C"), ElementsAre("AB😀"));
  EXPECT_THAT(matches(".", "a\n世"), ElementsAre("a", "世"));
  EXPECT_THAT(matches("[x-zb-da-cm-mn]+", "abcdefxyzlmno"), ElementsAre("abcd", "xyz", "mn"));
  // Oniguruma's notion of a word: superscripts and fractions of Latin-1 are in it, joiners aren't.
  EXPECT_THAT(matches(R"(\w+)", "a²½\u200db\u0301_1"), ElementsAre("a²½", "b\u0301_1"));
}

TEST(RegexTest, IgnoresTheCaseOfAsciiLetters) {
  EXPECT_THAT(matches("(?i:'s|'ll)", "'s'S'LL'lL'ſ's"), ElementsAre("'s", "'S", "'LL", "'lL", "'ſ", "'s"));
  EXPECT_THAT(matches("(?i:a)b", "ab Ab aB"), ElementsAre("ab", "Ab"));
  EXPECT_THAT(matches("(?i)a|b", "AB"), ElementsAre("A", "B"));
  EXPECT_THAT(matches("(?i:[x-z])", "xY"), ElementsAre("x", "Y"));
  EXPECT_THAT(matches("(?i:[^k])", "kK\u212Aa"), ElementsAre("a"));
}

TEST(RegexTest, ALiteralIsItself) {
  EXPECT_THAT(matches(Regex::literal("a."), "aba.a."), ElementsAre("a.", "a."));
  EXPECT_THAT(matches(Regex::literal("aa"), "aaa"), ElementsAre("aa"));
}

TEST(RegexTest, AnyBytesAreAText) {
  EXPECT_THAT(matches(R"([^a]+)", "a\xFF\xC3(a"), ElementsAre("\xFF\xC3("));
  EXPECT_THAT(matches(R"([^a]+b)", "\xFF\xE2\x82\x62"), ElementsAre("\xFF\xE2\x82\x62"));
}

struct BadPattern {
  const char* pattern;
  ErrorCode code;
  const char* expected;
};

TEST(RegexTest, RefusesWhatItDoesNotUnderstandNamingThePlace) {
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  constexpr ErrorCode kNot = ErrorCode::kUnsupported;
  for (const BadPattern& bad : {BadPattern{"a(b", kBad, "`(` without `)`"},
                                {"a)b", kBad, "`)` without `(`"},
                                {"[ab", kBad, "`[` without `]`"},
                                {"ab\\", kBad, "at the end"},
                                {"*a", kBad, "nothing to repeat at byte 0"},
                                {"a|+", kBad, "nothing to repeat at byte 2"},
                                {"[b-a]", kBad, "empty range"},
                                {"\\p", kBad, "\\p"},
                                {"\\xG1", kBad, "escape"},
                                {"a{2", kBad, "`{`"},
                                {"\\p{Greek}", kNot, "property"},
                                {"(?<=a)b", kNot, "group at byte 0"},
                                {"(?<n>a)", kNot, "group"},
                                {"(a)\\1", kNot, "escape at byte 3"},
                                {"\\ba", kNot, "escape"},
                                {"\\h", kNot, "escape"},
                                {"\\x80", kNot, "escape"},
                                {"\\x{D800}", kNot, "escape"},
                                {"[a[bc]]", kNot, "set inside of a set"},
                                {"[a&&b]", kNot, "set inside of a set"},
                                {"[]a]", kNot, "set inside of a set"},
                                {"[a-\\d]", kNot, "range up to a class"},
                                {"a{2}?", kNot, "{n}"},
                                {"a{x}", kNot, "count"},
                                {"a{1001}", kNot, "count"},
                                {"a{3,2}", kNot, "n beyond m"},
                                {"(?i:ss)", kNot, "fold"},
                                {"(?i:é)", kNot, "beyond ASCII"},
                                {"a*", kNot, "match nothing"},
                                {"", kNot, "match nothing"},
                                {"a|(?=b)", kNot, "match nothing"},
                                {"(?:a*)+b", kNot, "repeating what may match nothing"},
                                {"(?:){9}b", kNot, "repeating what may match nothing"},
                                {"(?!a)*b", kNot, "takes no text"},
                                {"(?:(?:(?:a{999}){999}){999}){999}", kNot, "this long"}}) {
    SCOPED_TRACE(bad.pattern);
    const Result<Regex> regex = Regex::compile(bad.pattern);
    ASSERT_FALSE(regex);
    EXPECT_EQ(regex.error().code, bad.code) << regex.error().message;
    EXPECT_THAT(regex.error().message, HasSubstr(bad.expected));
  }
  EXPECT_FALSE(Regex::compile(std::string(100'000, '(')));
  EXPECT_FALSE(Regex::compile(std::string(1'000, '(') + "a" + std::string(1'000, ')')));
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')));
}

TEST(RegexTest, TimeIsBoundedByTheTextWhateverThePattern) {
  // Each of these would take longer than anyone waits: the search gives up, and what it found stays found.
  const std::string text = "b " + std::string(2000, 'a') + "!";
  EXPECT_THAT(matches("b|(?:a+)+c", text), ElementsAre("b"));
  EXPECT_THAT(matches("b|(?:a|aa)+c", text), ElementsAre("b"));
  EXPECT_THAT(matches("b|a*a*a*a*c", text), ElementsAre("b"));
  EXPECT_THAT(matches("b|(?=(?:a|aa)+c)a", text), ElementsAre("b"));
  const std::string spaces(1 << 20, ' ');
  EXPECT_THAT(matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces), ElementsAre(spaces));
  EXPECT_THAT(matches("(?:ab)+", std::string(1 << 20, 'a')), IsEmpty());
}

}  // namespace
}  // namespace nmc::model
