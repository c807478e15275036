#include "model/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/json.h"
#include "base/rng.h"
#include "model/byte_tokenizer.h"

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kFamily = "👩‍👩‍👧";  // three people and two joiners

std::vector<TokenId> byte_ids(std::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

// What each push gives, then the flush.
std::vector<std::string> pieces_of(std::span<const TokenId> ids, bool skip_special = true) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, skip_special);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
  pieces.push_back(detokenizer.flush());
  return pieces;
}

std::string join(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

// Ids of the rules of Llama 2: texts with spaces in front, and from kByte on one token a byte.
class SpacedTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kA = 0, kSpaceB = 1, kSpace = 2, kNothing = 3, kControl = 4, kByte = 5;

  explicit SpacedTokenizer(DecodeRules rules) : rules_(rules) {
    for (std::size_t byte = 0; byte < 256; ++byte) bytes_.push_back(std::string(1, static_cast<char>(byte)));
  }
  std::vector<TokenId> encode_parts(std::span<const TextPart>, bool) const override { return {}; }
  std::string_view token_text(TokenId id) const override {
    static constexpr std::array<std::string_view, 5> kTexts = {"a", " b", " ", "", "</s>"};
    return id < kByte ? kTexts[id] : id < vocab_size() ? std::string_view(bytes_[id - kByte]) : std::string_view();
  }
  DecodeRules decode_rules() const override { return rules_; }
  bool is_byte(TokenId id) const override { return id >= kByte && id < vocab_size(); }
  std::optional<std::string> first_token_text(TokenId id) const override {
    return id == kSpaceB ? std::optional<std::string>("b") : Tokenizer::first_token_text(id);
  }
  std::size_t vocab_size() const override { return kByte + 256; }
  bool is_special(TokenId id) const override { return id == kControl; }
  std::optional<TokenId> special_id(std::string_view) const override { return std::nullopt; }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  std::span<const TokenId> eos_ids() const override { return {}; }
  Digest digest() const override { return {}; }

 private:
  DecodeRules rules_;
  std::vector<std::string> bytes_;
};

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  Detokenizer detokenizer(tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
  pieces.push_back(detokenizer.flush());
  EXPECT_EQ(join(pieces), tokenizer.decode(ids));
  return pieces;
}

TEST(DetokenizerTest, ARowOfByteTokensIsTextOrNothingOfIt) {
  using T = SpacedTokenizer;
  const T tokenizer({.byte_runs = true});
  const auto byte = [](int value) { return T::kByte + static_cast<TokenId>(value); };
  EXPECT_THAT(pieces_of(tokenizer, std::vector{T::kA, byte(0xC3), byte(0xA9), byte('x'), T::kA}),
              ElementsAre("a", "", "", "", "\u00e9xa", ""));
  // One bad byte, and each of the row is U+FFFD.
  EXPECT_THAT(pieces_of(tokenizer, std::vector{byte('x'), byte(0xC3), byte('y'), T::kSpaceB}),
              ElementsAre("", "", "", "\uFFFD\uFFFD\uFFFD b", ""));
  EXPECT_THAT(pieces_of(tokenizer, std::vector{byte(0xC3)}), ElementsAre("", "\uFFFD"));
  // What isn't there, or isn't shown, doesn't end a row.
  EXPECT_THAT(pieces_of(tokenizer, std::vector{byte(0xC3), T::kControl, TokenId{9999}, T::kNothing, byte(0xA9)}),
              ElementsAre("", "", "", "", "", "\u00e9"));
}

TEST(DetokenizerTest, TheStartLosesWhatTheRulesSay) {
  using T = SpacedTokenizer;
  const T one({.byte_runs = true, .strip = ' ', .strip_max = 1});
  EXPECT_THAT(pieces_of(one, std::vector{T::kSpaceB, T::kSpaceB}), ElementsAre("b", " b", ""));
  EXPECT_THAT(pieces_of(one, std::vector{T::kSpace, T::kSpaceB}), ElementsAre("", " b", ""));
  EXPECT_THAT(pieces_of(one, std::vector{T::kA, T::kSpaceB}), ElementsAre("a", " b", ""));
  EXPECT_THAT(pieces_of(one, std::vector{T::kByte + TokenId{' '}, T::kSpaceB}), ElementsAre("", " b", ""));
  const T three({.strip = ' ', .strip_max = 3});
  EXPECT_THAT(pieces_of(three, std::vector{T::kSpace, T::kSpace, T::kSpaceB, T::kSpaceB}),
              ElementsAre("", "", "b", " b", ""));
  const T first({.first_differs = true});
  EXPECT_THAT(pieces_of(first, std::vector{T::kControl, TokenId{9999}, T::kSpaceB, T::kSpaceB}),
              ElementsAre("", "", "b", " b", ""));
}

TEST(DetokenizerTest, AFlushMakesItReadyForAnother) {
  using T = SpacedTokenizer;
  const T tokenizer({.first_differs = true, .strip = ' ', .strip_max = 1});
  Detokenizer detokenizer(tokenizer);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(detokenizer.push(T::kSpaceB), "b");
    EXPECT_EQ(detokenizer.push(T::kSpaceB), " b");
    EXPECT_EQ(detokenizer.flush(), "");
  }
}

TEST(DetokenizerTest, ACharacterComesWhole) {
  EXPECT_THAT(pieces_of(byte_ids("a😀é")), ElementsAre("a", "", "", "", "😀", "", "é", ""));
}

TEST(DetokenizerTest, NoPrefixOfATextHoldsAReplacementMarkBeforeItsEnd) {
  const std::string text = std::string("今日は ") + kFamily + " ok";
  const std::vector<TokenId> ids = byte_ids(text);
  for (std::size_t count = 0; count <= ids.size(); ++count) {
    std::vector<std::string> pieces = pieces_of(std::span(ids).first(count));
    const bool cut = !is_valid_utf8(text.substr(0, count));
    EXPECT_EQ(pieces.back(), cut ? "\uFFFD" : "");
    pieces.pop_back();
    for (const std::string& piece : pieces) {
      EXPECT_TRUE(is_valid_utf8(piece));
      EXPECT_EQ(piece.find("\uFFFD"), piece.npos);
    }
  }
}

TEST(DetokenizerTest, ALoneLeadByteAtTheEndIsOneMark) {
  EXPECT_EQ(join(pieces_of(byte_ids("hi\xF0"))), "hi\uFFFD");
  EXPECT_EQ(join(pieces_of(byte_ids("\xF0\x9F\x98"))), "\uFFFD");
}

TEST(DetokenizerTest, AnImpossibleByteIsMarkedAtOnce) {
  EXPECT_THAT(pieces_of(byte_ids("\xFF"
                                 "a\xC0\x80")),
              ElementsAre("\uFFFD", "a", "\uFFFD", "\uFFFD", ""));
  EXPECT_THAT(pieces_of(byte_ids("\xE2\x82z")), ElementsAre("", "", "\uFFFDz", ""));
}

// The expected texts are Python's bytes.decode("utf-8", errors="replace").
TEST(DetokenizerTest, MaximalInvalidSequencesAreOneMarkEach) {
  const std::string mark = "\uFFFD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x80", mark},
      {"\xC3\x28", mark + "("},
      {"\xE0\x80\x80", mark + mark + mark},  // overlong
      {"\xED\xA0\x80", mark + mark + mark},  // a surrogate
      {"\xED\x9F\xBF", "\uD7FF"},
      {"\xF0\x80\x80\x80", mark + mark + mark + mark},  // overlong
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},  // beyond U+10FFFF
      {"\xF4\x8F\xBF\xBF", "\U0010FFFF"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", mark + "😀"},
      {"\xF0\x9F\xC3\xA9", mark + "é"},
      {"\xE2\x82\xE2\x82\xAC", mark + "€"},
      {"\xF5\x80", mark + mark},
      {"\xC1\xBF", mark + mark},
      {std::string("\0", 1), std::string("\0", 1)},
      {"\xEF\xBB\xBF", "\uFEFF"},
      {"\xEF\xBF\xBD", mark},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(join(pieces_of(byte_ids(bytes))), expected);
    EXPECT_EQ(ByteTokenizer().decode(byte_ids(bytes)), expected);
  }
}

TEST(DetokenizerTest, HowBytesAreCutDoesNotMatter) {
  Rng rng(7);
  constexpr std::array<unsigned char, 16> kBytes = {0x41, 0x80, 0xBF, 0xC2, 0xC0, 0xE0, 0xA0, 0x9F,
                                                    0xED, 0xEF, 0xF0, 0x90, 0xF4, 0x8F, 0xF5, 0xFF};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::uint64_t i = rng.below(12); i > 0; --i) bytes.push_back(static_cast<char>(kBytes[rng.below(16)]));
    Utf8Stream whole;
    std::string expected = whole.push(bytes);
    expected += whole.flush();
    EXPECT_TRUE(is_valid_utf8(expected));
    Utf8Stream cut;
    std::string joined;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + rng.below(3);
      const std::string piece = cut.push(std::string_view(bytes).substr(at, size));
      EXPECT_TRUE(is_valid_utf8(piece));
      joined += piece;
      at += size;
    }
    EXPECT_EQ(joined + cut.flush(), expected);
  }
}

TEST(DetokenizerTest, ControlTokensAreHiddenUnlessAskedFor) {
  const std::vector<TokenId> ids = {ByteTokenizer::kBos, 'h', 'i', ByteTokenizer::kEnd};
  EXPECT_EQ(join(pieces_of(ids)), "hi");
  EXPECT_EQ(join(pieces_of(ids, false)), "<bos>hi<end>");
}

TEST(DetokenizerTest, AControlTokenInsideACharacterDoesNotEndIt) {
  const std::vector<TokenId> ids = {0xC3, ByteTokenizer::kEnd, 0xA9};
  EXPECT_EQ(join(pieces_of(ids)), "é");
  EXPECT_EQ(join(pieces_of(ids, false)), "\uFFFD<end>\uFFFD");
}

TEST(DetokenizerTest, IsReadyForAnotherTextAfterFlush) {
  Utf8Stream stream;
  EXPECT_THAT(stream.push("\xF0\x9F"), IsEmpty());
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_THAT(stream.flush(), IsEmpty());
  EXPECT_EQ(stream.push("é"), "é");
  EXPECT_THAT(stream.flush(), IsEmpty());
}

}  // namespace
}  // namespace nmc::model
