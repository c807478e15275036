#include "model/tokenizer_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/rng.h"
#include "model/tokenizer_file.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Type = TokenizerArrays::Type;

std::unique_ptr<Tokenizer> made(Result<std::unique_ptr<Tokenizer>> tokenizer) {
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

// ---- SentencePiece. Ids: <unk> <s> </s>, then a token a byte, then texts with their scores.

constexpr TokenId kUnk = 0, kBos = 1, kEos = 2, kByte0 = 3, kFirst = 259;

TokenizerArrays spm_arrays(const std::vector<std::pair<std::string, float>>& texts) {
  TokenizerArrays arrays;
  const auto add = [&](std::string text, float score, Type type) {
    arrays.tokens.push_back(std::move(text));
    arrays.scores.push_back(score);
    arrays.types.push_back(type);
  };
  add("<unk>", 0, Type::kUnknown);
  add("<s>", 0, Type::kControl);
  add("</s>", 0, Type::kControl);
  for (int byte = 0; byte < 256; ++byte) add(name_of_byte(static_cast<std::uint8_t>(byte)), 0, Type::kByte);
  for (const auto& [text, score] : texts) add(text, score, Type::kNormal);
  arrays.bos_id = kBos;
  arrays.eos_id = kEos;
  return arrays;
}

TEST(SpmTokenizerTest, TheHighestScoreJoinsFirstThenTheLeftmost) {
  const auto tokenizer = made(make_spm_tokenizer(
      spm_arrays({{"▁", -9}, {"a", -9}, {"b", -9}, {"ab", -2}, {"ba", -1}, {"aa", -3}, {"bb", -3}, {"▁a", -5}})));
  const auto ids = [&](std::string_view text) { return tokenizer->encode(text); };
  constexpr TokenId kMark = kFirst, kA = kFirst + 1, kAB = kFirst + 3, kBA = kFirst + 4, kAA = kFirst + 5;
  constexpr TokenId kMarkA = kFirst + 7;
  EXPECT_THAT(ids("aba"), ElementsAre(kMarkA, kBA));
  EXPECT_THAT(ids("bab"), ElementsAre(kMark, kBA, kFirst + 2));
  EXPECT_THAT(ids("aaa"), ElementsAre(kMark, kAA, kA));
  EXPECT_THAT(ids("aab"), ElementsAre(kMarkA, kAB));
}

TEST(SpmTokenizerTest, UnknownTextIsSpelledInBytesAndControlTextIsText) {
  const auto tokenizer = made(make_spm_tokenizer(spm_arrays({{"▁", -1}, {"s", -2}})));
  EXPECT_THAT(tokenizer->encode("é"), ElementsAre(kFirst, kByte0 + 0xC3, kByte0 + 0xA9));
  EXPECT_THAT(tokenizer->encode("<s>"), ElementsAre(kFirst, kByte0 + '<', kFirst + 1, kByte0 + '>'));
  EXPECT_THAT(tokenizer->encode("<s>s", {.parse_special = true, .add_bos = true}),
              ElementsAre(kBos, kBos, kFirst, kFirst + 1));
  EXPECT_EQ(tokenizer->bos_id(), kBos);
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(kEos));
  EXPECT_TRUE(tokenizer->is_special(kUnk));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
}

TEST(SpmTokenizerTest, DecodesWhatItEncoded) {
  TokenizerArrays arrays = spm_arrays({{"▁", -1}, {"a", -2}, {"▁a", -3}});
  for (const bool prefix : {true, false}) {
    arrays.add_space_prefix = prefix;
    const auto tokenizer = made(make_spm_tokenizer(arrays));
    for (const std::string text : {"a a", " a", "  ", "é\n世 a", "a", ""}) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

// The definition, on texts.
std::vector<std::string> joined_naively(const std::map<std::string, float>& scores, std::vector<std::string> symbols) {
  for (;;) {
    std::size_t best = symbols.size();
    float best_score = -INFINITY;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = scores.find(symbols[i] + symbols[i + 1]);
      if (it == scores.end() || it->second <= best_score) continue;
      best = i;
      best_score = it->second;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(SpmTokenizerTest, EqualsTheDefinitionOnRandomVocabularies) {
  Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, float> scores = {{"▁", -50.f}, {"a", -50.f}, {"b", -50.f}};
    std::vector<std::string> letters = {"a", "b", "▁"};
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::uint64_t n = 2 + rng.below(4); n > 0; --n) text += letters[rng.below(letters.size())];
      scores.emplace(text, -static_cast<float>(rng.below(8)));  // often equal
    }
    const auto tokenizer = made(make_spm_tokenizer(spm_arrays({scores.begin(), scores.end()})));
    for (int i = 0; i < 20; ++i) {
      std::string text;
      std::vector<std::string> symbols = {"▁"};
      for (std::uint64_t n = 1 + rng.below(60); n > 0; --n) {
        symbols.push_back(letters[rng.below(letters.size())]);
        text += symbols.back() == "▁" ? " " : symbols.back();
      }
      std::vector<std::string> got;
      for (const TokenId id : tokenizer->encode(text)) {
        got.emplace_back(std::next(scores.begin(), static_cast<std::ptrdiff_t>(id - kFirst))->first);
      }
      EXPECT_EQ(got, joined_naively(scores, symbols)) << "round " << round << ": " << text;
    }
  }
}

TEST(SpmTokenizerTest, RefusesArraysThatDoNotFit) {
  const auto error = [](auto change) {
    TokenizerArrays arrays = spm_arrays({{"▁", -1}, {"a", -2}});
    change(arrays);
    const auto tokenizer = make_spm_tokenizer(std::move(arrays));
    return tokenizer ? "made" : tokenizer.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "made");
  EXPECT_THAT(error([](auto& arrays) { arrays.scores.pop_back(); }), HasSubstr("scores: expected as many"));
  EXPECT_THAT(error([](auto& arrays) { arrays.types.pop_back(); }), HasSubstr("token types: expected as many"));
  EXPECT_THAT(error([](auto& arrays) { arrays.scores[7] = NAN; }), HasSubstr("scores[7]"));
  EXPECT_THAT(error([](auto& arrays) { arrays.tokens[9] = "\xFF"; }), HasSubstr("tokens[9]: expected UTF-8"));
  EXPECT_THAT(error([](auto& arrays) { arrays.bos_id = 4000; }), HasSubstr("start token"));
  EXPECT_THAT(error([](auto& arrays) { arrays.tokens[2] = ""; }), HasSubstr("end token"));
  EXPECT_THAT(error([](auto& arrays) { arrays.tokens.back() = std::string(600, 'x'); }), HasSubstr("at most 512"));
  EXPECT_THAT(error([](auto& arrays) {
                for (int i = 0; i < 5'000; ++i) {
                  arrays.tokens.push_back(std::to_string(i) + std::string(500, 'x'));
                  arrays.types.push_back(Type::kNormal);
                  arrays.scores.push_back(0);
                }
              }),
              HasSubstr("shorter ones, or fewer"));
  EXPECT_THAT(error([](auto& arrays) { arrays = {}; }), HasSubstr("tokens: expected at least one"));
}

TEST(SpmTokenizerTest, EqualDigestsMeanEqualArrays) {
  TokenizerArrays arrays = spm_arrays({{"▁", -1}, {"a", -2}});
  const Digest digest = made(make_spm_tokenizer(arrays))->digest();
  EXPECT_EQ(made(make_spm_tokenizer(arrays))->digest(), digest);
  arrays.scores.back() = -3;
  EXPECT_NE(made(make_spm_tokenizer(arrays))->digest(), digest);
  arrays.scores.back() = -2;
  arrays.add_space_prefix = false;
  EXPECT_NE(made(make_spm_tokenizer(arrays))->digest(), digest);
}

// ---- Bytes

TokenizerArrays bpe_arrays(std::string pre_tokenizer) {
  TokenizerArrays arrays;
  for (unsigned byte = 0; byte < 256; ++byte) {
    arrays.tokens.emplace_back();
    append_utf8(arrays.tokens.back(), byte_to_character(static_cast<std::uint8_t>(byte)));
  }
  for (const char* text : {"1 2", "12 3", "Ġ a", "é"}) {  // the last stands for a control token below
    std::string token = text;
    std::erase(token, ' ');
    arrays.tokens.push_back(token);
  }
  arrays.tokens.back() = "<|end|>";
  arrays.types.assign(arrays.tokens.size(), Type::kNormal);
  arrays.types.back() = Type::kControl;
  arrays.merges = {"1 2", "12 3", "Ġ a"};
  arrays.pre_tokenizer = std::move(pre_tokenizer);
  arrays.eos_id = 259;
  return arrays;
}

TEST(BpeArraysTest, ThePreTokenizerGoesByName) {
  constexpr TokenId k12 = 256, k123 = 257, kSpaceA = 258;
  const auto ids = [](const char* name) { return made(make_bpe_tokenizer(bpe_arrays(name)))->encode("1234 a"); };
  EXPECT_THAT(ids("gpt-2"), ElementsAre(k123, '4', kSpaceA));
  EXPECT_THAT(ids("llama-bpe"), ElementsAre(k123, '4', kSpaceA));
  EXPECT_THAT(ids("gpt-4o"), ElementsAre(k123, '4', kSpaceA));
  EXPECT_THAT(ids("qwen2"), ElementsAre('1', '2', '3', '4', kSpaceA));
  EXPECT_THAT(ids("smollm"), ElementsAre('1', '2', '3', '4', kSpaceA));
  EXPECT_THAT(made(make_bpe_tokenizer(bpe_arrays("gpt-2")))->encode("12"), ElementsAre(k12));
  EXPECT_TRUE(is_known_pre_tokenizer("qwen2"));
  EXPECT_FALSE(is_known_pre_tokenizer("default"));
}

TEST(BpeArraysTest, Qwen2ComposesCharacters) {
  const auto tokenizer = made(make_bpe_tokenizer(bpe_arrays("qwen2")));
  EXPECT_THAT(tokenizer->encode("e\u0301"), ElementsAre(0xC3, 0xA9));
}

TEST(BpeArraysTest, ControlTokensAndRepetitionsAreNeverMade) {
  TokenizerArrays arrays = bpe_arrays("gpt-2");
  arrays.tokens.push_back("12");
  arrays.tokens.push_back("");
  arrays.types.resize(arrays.tokens.size(), Type::kNormal);
  const auto tokenizer = made(make_bpe_tokenizer(arrays));
  EXPECT_THAT(tokenizer->encode("12"), ElementsAre(256));
  EXPECT_EQ(tokenizer->token_text(260), "12");
  EXPECT_EQ(tokenizer->token_text(261), "");
  EXPECT_THAT(tokenizer->encode("<|end|>"), ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
  EXPECT_THAT(tokenizer->encode("<|end|>", {.parse_special = true}), ElementsAre(259));
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(259));
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(BpeArraysTest, RefusesArraysThatDoNotFit) {
  const auto error = [](auto change) {
    TokenizerArrays arrays = bpe_arrays("gpt-2");
    change(arrays);
    const auto tokenizer = make_bpe_tokenizer(std::move(arrays));
    return tokenizer ? "made" : tokenizer.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "made");
  EXPECT_THAT(error([](auto& arrays) { arrays.pre_tokenizer = "mystery"; }), HasSubstr("mystery"));
  EXPECT_THAT(error([](auto& arrays) { arrays.merges[1] = "12"; }), HasSubstr("merges[1]"));
  EXPECT_THAT(error([](auto& arrays) { arrays.merges[1] = "12 4"; }), HasSubstr("\"124\" is no token"));
  EXPECT_THAT(error([](auto& arrays) { arrays.merges[0] = "zz 2"; }), HasSubstr("\"zz\" is no token"));
  EXPECT_THAT(error([](auto& arrays) { arrays.merges[2] = ""; }), HasSubstr("merges[2]"));
}

}  // namespace
}  // namespace nmc::model
