#include "model/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> pieces(std::string_view text, PreTokenizer pre_tokenizer = {}) {
  std::vector<std::string> found;
  pre_tokenizer.for_each_piece(text, [&](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

TEST(PreTokenizerTest, WordsTakeTheSpaceBeforeThem) {
  EXPECT_THAT(pieces("Hello world, 12 apples!!"), ElementsAre("Hello", " world", ",", " 12", " apples", "!!"));
  EXPECT_THAT(pieces("a1b"), ElementsAre("a", "1", "b"));
  EXPECT_THAT(pieces(""), IsEmpty());
}

TEST(PreTokenizerTest, ARunOfSpacesLeavesItsLastToTheWord) {
  EXPECT_THAT(pieces("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces("a  "), ElementsAre("a", "  "));
  EXPECT_THAT(pieces("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(pieces("\n b"), ElementsAre("\n", " b"));
  EXPECT_THAT(pieces("a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000", "b"));
  EXPECT_THAT(pieces("a\u00a0b"), ElementsAre("a", "\u00a0", "b"));
}

TEST(PreTokenizerTest, ContractionsAreCutInLowerCaseOnly) {
  EXPECT_THAT(pieces("it's we're I'LL"), ElementsAre("it", "'s", " we", "'re", " I", "'", "LL"));
  EXPECT_THAT(pieces("'sabc"), ElementsAre("'s", "abc"));
  EXPECT_THAT(pieces("''s 's"), ElementsAre("''", "s", " '", "s"));
}

TEST(PreTokenizerTest, ClassesAreThoseOfUnicode) {
  EXPECT_THAT(pieces("héé世界٣½①"), ElementsAre("héé世界", "٣½①"));
  EXPECT_THAT(pieces("e\u0301e"), ElementsAre("e", "\u0301", "e"));  // a mark is no letter
  EXPECT_THAT(pieces("👩‍👩"), ElementsAre("👩‍👩"));
}

TEST(PreTokenizerTest, BrokenUtf8IsPunctuation) {
  EXPECT_THAT(pieces("a\xFF\xC3 b\xE2\x82"), ElementsAre("a", "\xFF\xC3", " b", "\xE2\x82"));
}

TEST(PreTokenizerTest, DigitsAreCutOffWhenAsked) {
  EXPECT_THAT(pieces("ab 123", {.digits = PreTokenizer::Digits::kIndividual}), ElementsAre("ab", " ", "1", "2", "3"));
  EXPECT_THAT(pieces("ab 123c", {.digits = PreTokenizer::Digits::kRuns}), ElementsAre("ab", " ", "123", "c"));
}

TEST(PreTokenizerTest, APrefixSpaceIsAddedOnce) {
  EXPECT_THAT(pieces("a b", {.add_prefix_space = true}), ElementsAre(" a", " b"));
  EXPECT_THAT(pieces(" a", {.add_prefix_space = true}), ElementsAre(" a"));
  EXPECT_THAT(pieces("", {.add_prefix_space = true}), IsEmpty());
}

TEST(PreTokenizerTest, WithoutThePatternASectionIsOnePiece) {
  EXPECT_THAT(pieces("it's a b", {.use_pattern = false}), ElementsAre("it's a b"));
}

TEST(PreTokenizerTest, PiecesJoinToTheText) {
  const std::string text = "It's\t  12½\u3000x\xF0\x9F !!  \n";
  std::string joined;
  for (const std::string& piece : pieces(text)) joined += piece;
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace nmc::model
