#include "model/normalizer.h"

#include <gtest/gtest.h>

#include <vector>

namespace nmc::model {
namespace {

std::string run(std::vector<Normalizer::Step> steps, std::string_view text) {
  return Normalizer(std::move(steps)).apply(text);
}

TEST(NormalizerTest, FormsOfUnicode) {
  EXPECT_EQ(run({UnicodeForm::kNfc}, "e\u0301 \u00e9"), "\u00e9 \u00e9");
  EXPECT_EQ(run({UnicodeForm::kNfd}, "\u00e9"), "e\u0301");
  EXPECT_EQ(run({UnicodeForm::kNfc}, "\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(run({UnicodeForm::kNfd}, "\uac01"), "\u1100\u1161\u11a8");
  EXPECT_EQ(run({UnicodeForm::kNfkc}, "ﬁ①Ａ"), "fi1A");
  EXPECT_EQ(run({UnicodeForm::kNfkd}, "ﬁé"), "fie\u0301");
  EXPECT_EQ(run({UnicodeForm::kNfc}, "ﬁ①"), "ﬁ①");
  EXPECT_EQ(run({UnicodeForm::kNfc}, "\u212b\u2126"), "\u00c5\u03a9");
}

TEST(NormalizerTest, MarksComeInTheOrderOfTheirClasses) {
  EXPECT_EQ(run({UnicodeForm::kNfd}, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(run({UnicodeForm::kNfc}, "\u00e9\u0323"), "\u1eb9\u0301");
  EXPECT_EQ(run({UnicodeForm::kNfc}, "\u0344"), "\u0308\u0301");
}

TEST(NormalizerTest, OnlyWhatMovesIsTouched) {
  const std::string text = "plain text, \u00e9\u00fc\u00df";
  std::string storage;
  EXPECT_EQ(Normalizer({UnicodeForm::kNfc}).apply(text, storage).data(), text.data());
  EXPECT_EQ(run({UnicodeForm::kNfc}, "a\u0301b\u4e16c\u0301\u0301d"), "\u00e1b\u4e16\u0107\u0301d");
}

TEST(NormalizerTest, BytesThatAreNoTextStay) {
  EXPECT_EQ(run({UnicodeForm::kNfc},
                "\xFF"
                "e\u0301\xE2\x82\u0301"),
            "\xFF\u00e9\xE2\x82\u0301");
  EXPECT_EQ(run({UnicodeForm::kNfd}, "\uFFFD\u00e9\xC3"), "\uFFFDe\u0301\xC3");
  EXPECT_EQ(run({LowercaseStep()}, "A\xFF\xC3Z\uFFFD"), "a\xFF\xC3z\uFFFD");
}

TEST(NormalizerTest, LowercaseGoesByCharacter) { EXPECT_EQ(run({LowercaseStep()}, "ÀΣ İ Ⅷ ǅ"), "àσ i\u0307 ⅷ ǆ"); }

TEST(NormalizerTest, StripsWhiteSpaceOnTheSidesAsked) {
  const std::string_view text = "\u3000 a b\n\u00a0";
  EXPECT_EQ(run({StripStep{.left = true, .right = true}}, text), "a b");
  EXPECT_EQ(run({StripStep{.left = true}}, text), "a b\n\u00a0");
  EXPECT_EQ(run({StripStep{.right = true}}, text), "\u3000 a b");
  EXPECT_EQ(run({StripStep{.left = true, .right = true}}, " \n "), "");
}

TEST(NormalizerTest, StepsRunInOrder) {
  const ReplaceStep mark{std::make_shared<const Regex>(Regex::literal(" ")), "▁"};
  EXPECT_EQ(run({PrependStep{"▁"}, mark}, "a  b"), "▁a▁▁b");
  EXPECT_EQ(run({PrependStep{"▁"}, mark}, ""), "");
  const ReplaceStep squeeze{std::make_shared<const Regex>(*Regex::compile(" {2,}")), "$0"};
  EXPECT_EQ(run({squeeze, LowercaseStep()}, "A   B C"), "a$0b c");
  EXPECT_EQ(run({}, "as it is"), "as it is");
}

TEST(NormalizerTest, AMillionMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0323";
  const std::string normal = run({UnicodeForm::kNfd}, text);
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_EQ(normal.substr(0, 5), "a\u0323\u0323");
  EXPECT_EQ(run({UnicodeForm::kNfc}, text).substr(0, 5), "\u1ea1\u0323");
}

}  // namespace
}  // namespace nmc::model
