#include "model/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Steps = std::vector<PreTokenizer::Step>;

std::vector<std::string> pieces(std::string_view text, Steps steps = {ByteLevelStep()}, bool at_start = true) {
  std::vector<std::string> found;
  const PreTokenizer pre_tokenizer(std::move(steps));
  pre_tokenizer.for_each_piece(text, at_start, [&](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

SplitStep split(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
  return {.regex = std::make_shared<const Regex>(*Regex::compile(pattern)), .behavior = behavior, .invert = invert};
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
  EXPECT_THAT(pieces("ab 123", {DigitsStep{.individual = true}, ByteLevelStep()}),
              ElementsAre("ab", " ", "1", "2", "3"));
  EXPECT_THAT(pieces("ab 123c", {DigitsStep{.individual = false}, ByteLevelStep()}),
              ElementsAre("ab", " ", "123", "c"));
}

TEST(PreTokenizerTest, APrefixSpaceIsAddedOnce) {
  const ByteLevelStep prefixing{.add_prefix_space = true};
  EXPECT_THAT(pieces("a b", {prefixing}), ElementsAre(" a", " b"));
  EXPECT_THAT(pieces(" a", {prefixing}), ElementsAre(" a"));
  EXPECT_THAT(pieces("", {prefixing}), IsEmpty());
}

TEST(PreTokenizerTest, WithoutThePatternASectionIsOnePiece) {
  EXPECT_THAT(pieces("it's a b", {ByteLevelStep{.use_pattern = false}}), ElementsAre("it's a b"));
  EXPECT_THAT(pieces("it's a b", {}), ElementsAre("it's a b"));
}

TEST(PreTokenizerTest, ASplitDoesWithItsDelimitersWhatItSays) {
  const auto with = [](SplitBehavior behavior) { return pieces("-the-final--count-", {split("-", behavior)}); };
  EXPECT_THAT(with(SplitBehavior::kRemoved), ElementsAre("the", "final", "count"));
  EXPECT_THAT(with(SplitBehavior::kIsolated), ElementsAre("-", "the", "-", "final", "-", "-", "count", "-"));
  EXPECT_THAT(with(SplitBehavior::kMergedWithPrevious), ElementsAre("-", "the-", "final-", "-", "count-"));
  EXPECT_THAT(with(SplitBehavior::kMergedWithNext), ElementsAre("-the", "-final", "-", "-count", "-"));
  EXPECT_THAT(with(SplitBehavior::kContiguous), ElementsAre("-", "the", "-", "final", "--", "count", "-"));
}

TEST(PreTokenizerTest, AnInvertedSplitTakesTheRestForDelimiters) {
  EXPECT_THAT(pieces("ab, cd", {split("[a-z]+", SplitBehavior::kRemoved, true)}), ElementsAre("ab", "cd"));
  EXPECT_THAT(pieces("ab, cd", {split("[a-z]+", SplitBehavior::kMergedWithNext, true)}), ElementsAre("ab", ", cd"));
  const SplitStep by_hand{.piece_end = gpt2_piece_end, .behavior = SplitBehavior::kRemoved, .invert = true};
  EXPECT_THAT(pieces("ab, cd", {by_hand}), ElementsAre("ab", ",", " cd"));
}

TEST(PreTokenizerTest, EachStepCutsWhatTheOneBeforeLeft) {
  EXPECT_THAT(pieces("ab12 cd", {split("[0-9]", SplitBehavior::kIsolated), split("b", SplitBehavior::kRemoved)}),
              ElementsAre("a", "1", "2", " cd"));
}

TEST(PreTokenizerTest, MetaspaceMarksSpacesAndCutsBeforeThem) {
  using Prepend = MetaspaceStep::Prepend;
  const auto with = [](std::string_view text, Prepend prepend, bool at_start = true, bool cuts = true) {
    return pieces(text, {MetaspaceStep{.replacement = "▁", .prepend = prepend, .split = cuts}}, at_start);
  };
  EXPECT_THAT(with("a  b ", Prepend::kAlways), ElementsAre("▁a", "▁", "▁b", "▁"));
  EXPECT_THAT(with(" a", Prepend::kAlways), ElementsAre("▁a"));
  EXPECT_THAT(with("▁a", Prepend::kAlways), ElementsAre("▁a"));
  EXPECT_THAT(with("a b", Prepend::kNever), ElementsAre("a", "▁b"));
  EXPECT_THAT(with("a b", Prepend::kFirst), ElementsAre("▁a", "▁b"));
  EXPECT_THAT(with("a b", Prepend::kFirst, false), ElementsAre("a", "▁b"));
  EXPECT_THAT(with("a  b", Prepend::kAlways, true, false), ElementsAre("▁a▁▁b"));
}

TEST(PreTokenizerTest, OnlyThePieceAtTheStartIsTheFirst) {
  const MetaspaceStep first{.replacement = "▁", .prepend = MetaspaceStep::Prepend::kFirst};
  EXPECT_THAT(pieces("ab", {split("a", SplitBehavior::kIsolated), first}), ElementsAre("▁a", "b"));
  EXPECT_THAT(pieces("ab", {split("a", SplitBehavior::kRemoved), first}), ElementsAre("b"));
}

TEST(PreTokenizerTest, PiecesJoinToTheText) {
  const std::string text = "It's\t  12½\u3000x\xF0\x9F !!  \n";
  std::string joined;
  for (const std::string& piece : pieces(text)) joined += piece;
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace nmc::model
