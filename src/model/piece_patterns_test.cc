#include "model/piece_patterns.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "model/regex.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

// Text in which everything the patterns tell apart is near everything else.
std::string random_text(Rng& rng) {
  static const std::vector<std::string> kParts = {
      " ",  " ",  "  ", "\n",  "\r",     "\r\n",   "\t",       "\u00a0", "\u3000", "\u0085", "\u2028", "'",
      "'s", "'S", "'ſ", "'re", "'Ve",    "'lL",    "'l",       "'r",     "'t",     "'M",     "'d",     "a",
      "Zz", "é",  "ſ",  "世",  "\u0301", "\u200d", "👩",       "1",      "23",     "½",      "٣",      "Ⅷ",
      "!",  ",.", "_",  "{",   "—",      "\xFF",   "\xE2\x82", "\xC3",   "\u180e", "\u200b", "\x01",   "\U0001fae8"};
  std::string text;
  const std::uint64_t count = rng.below(20);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (rng.below(8) == 0) {
      const auto code = static_cast<char32_t>(rng.below(rng.below(2) == 0 ? 0x3100 : 0x110000));
      if (code < 0xD800 || code >= 0xE000) append_utf8(text, code);
    } else {
      text += kParts[rng.below(kParts.size())];
    }
  }
  return text;
}

std::vector<std::string> by_hand(PieceEnd piece_end, std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::string> by_regex(const Regex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  Regex::Search search(regex, text);
  std::size_t done = 0;
  while (const auto match = search.next()) {
    EXPECT_EQ(match->begin, done) << "something lies between two matches";
    pieces.emplace_back(text.substr(match->begin, match->end - match->begin));
    done = match->end;
  }
  EXPECT_EQ(done, text.size());
  return pieces;
}

TEST(PiecePatternsTest, EachMatcherEqualsItsPattern) {
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kCl100kPattern}) {
    SCOPED_TRACE(pattern);
    const PieceEnd piece_end = piece_end_of(pattern);
    ASSERT_NE(piece_end, nullptr);
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_TRUE(regex) << regex.error().message;
    Rng rng(7);
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = random_text(rng);
      ASSERT_EQ(by_hand(piece_end, text), by_regex(*regex, text)) << "round " << round << ": " << text;
    }
  }
}

TEST(PiecePatternsTest, OtherPatternsHaveNone) {
  EXPECT_EQ(piece_end_of(R"(\p{L}+)"), nullptr);
  EXPECT_EQ(piece_end_of(""), nullptr);
  EXPECT_EQ(piece_end_of(kGpt4oPattern), nullptr);
  EXPECT_TRUE(Regex::compile(kGpt4oPattern));
}

}  // namespace
}  // namespace nmc::model
