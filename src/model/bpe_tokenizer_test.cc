#include "model/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "model/test_files.h"
#include "model/test_tokenizer_json.h"

namespace nmc::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kHello = 259, kSpaceHello = 261, kStart = 262, kEnd = 263, kTool = 264;

Json hello_json() {
  Json json = tokenizer_json({"h e", "l l", "he ll", "hell o", "Ġ h", "Ġ hello"});
  json["added_tokens"] = {added_token(kStart, "<s>", true), added_token(kEnd, "</s>", true),
                          added_token(kTool, "<|tool|>", false)};
  return json;
}

std::unique_ptr<BpeTokenizer> make(const Json& json, const TokenizerConfig& config = {}) {
  const std::string text = dump_json(json);
  auto file = parse_tokenizer_file(text, "f");
  EXPECT_TRUE(file) << file.error().message;
  auto tokenizer = BpeTokenizer::make(std::move(*file), config, text);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

TEST(BpeTokenizerTest, MergesInsidePieces) {
  const auto tokenizer = make(hello_json());
  EXPECT_THAT(tokenizer->encode("hello hello!"), ElementsAre(kHello, kSpaceHello, '!'));
  EXPECT_THAT(tokenizer->encode("hell"), ElementsAre(258));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
  EXPECT_EQ(tokenizer->vocab_size(), 265u);
}

TEST(BpeTokenizerTest, DecodesWhatItEncoded) {
  const auto tokenizer = make(hello_json());
  for (const std::string text : {"hello  héllo\n\t👩‍👩‍👧 世界", "a<|tool|>b", "\x01\x7f\u0085"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(BpeTokenizerTest, BrokenUtf8IsEncodedByteByByte) {
  const auto tokenizer = make(hello_json());
  const std::string bytes = "hello\xFF\xC3 \xE2\x82";
  const auto ids = tokenizer->encode(bytes);
  EXPECT_THAT(ids, ElementsAre(kHello, 0xFF, 0xC3, ' ', 0xE2, 0x82));
  EXPECT_EQ(tokenizer->decode(ids), "hello\uFFFD\uFFFD \uFFFD");
}

TEST(BpeTokenizerTest, TextBecomesAControlTokenOnlyWhenAsked) {
  const auto tokenizer = make(hello_json(), {.bos_token = "<s>", .eos_token = "</s>"});
  const std::string text = "</s><s>hello<|tool|>";
  EXPECT_THAT(tokenizer->encode(text, {.parse_special = true}), ElementsAre(kEnd, kStart, kHello, kTool));
  const auto plain = tokenizer->encode(text);
  EXPECT_TRUE(std::ranges::none_of(plain, [&](TokenId id) { return tokenizer->is_special(id); }));
  EXPECT_EQ(tokenizer->decode(plain), text);
}

TEST(BpeTokenizerTest, PartsAreOneTextWithControlTokensWhereAllowed) {
  const auto tokenizer = make(hello_json());
  using Parts = std::vector<TextPart>;
  EXPECT_THAT(tokenizer->encode_parts(Parts{{"<s>he", true}, {"llo he", false}, {"llo</s>", true}}),
              ElementsAre(kStart, kHello, kSpaceHello, kEnd));
  EXPECT_THAT(tokenizer->encode_parts(Parts{{"<s>", true}, {"</s>", false}, {"</s>", true}}),
              ElementsAre(kStart, '<', '/', 's', '>', kEnd));
  EXPECT_THAT(tokenizer->encode_parts(Parts{{"<", true}, {"s>", true}, {"", false}}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(tokenizer->encode_parts(Parts{{"<|to", false}, {"ol|>", true}}), ElementsAre(kTool));
  EXPECT_THAT(tokenizer->encode_parts({}), IsEmpty());
}

TEST(BpeTokenizerTest, MergesNeverMakeAControlToken) {
  for (const bool ignore_merges : {false, true}) {
    Json json = tokenizer_json({"o k"});
    json["model"]["ignore_merges"] = ignore_merges;
    json["added_tokens"].push_back(added_token(256, "ok", true));
    const auto tokenizer = make(json);
    EXPECT_THAT(tokenizer->encode("ok"), ElementsAre('o', 'k'));
    EXPECT_THAT(tokenizer->encode("ok", {.parse_special = true}), ElementsAre(256));
  }
}

TEST(BpeTokenizerTest, ATokenTheConfigNamesIsAControlToken) {
  Json json = hello_json();
  json["added_tokens"] = Json::array();
  const auto tokenizer = make(json, {.eos_token = "hello"});
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(kHello));
  EXPECT_TRUE(tokenizer->is_special(kHello));
  EXPECT_THAT(tokenizer->encode("hello", {.parse_special = true}), ElementsAre(kHello));
  EXPECT_THAT(tokenizer->encode("hello"), ElementsAre(258, 'o'));
}

TEST(BpeTokenizerTest, ControlTokensAreHiddenFromText) {
  const auto tokenizer = make(hello_json());
  EXPECT_EQ(tokenizer->token_text(kStart), "<s>");
  EXPECT_EQ(tokenizer->token_bytes(kStart), "");
  EXPECT_EQ(tokenizer->token_bytes(kTool), "<|tool|>");
  EXPECT_EQ(tokenizer->token_bytes(kSpaceHello), " hello");
  EXPECT_EQ(tokenizer->special_id("</s>"), kEnd);
  EXPECT_EQ(tokenizer->special_id("<|tool|>"), std::nullopt);
  const std::vector<TokenId> ids = {kStart, kHello, kEnd, 9999, 0xFFFFFFFF};
  EXPECT_EQ(tokenizer->decode(ids), "hello");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s>hello</s>");
}

TEST(BpeTokenizerTest, IgnoreMergesTakesWholePieces) {
  Json json = tokenizer_json({"h e"});
  json["model"]["vocab"]["hey"] = 257;
  EXPECT_THAT(make(json)->encode("hey"), ElementsAre(256, 'y'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(make(json)->encode("hey heyy"), ElementsAre(257, ' ', 256, 'y', 'y'));
}

TEST(BpeTokenizerTest, BytesOutsideOfTheVocabularyAreUnknownOrLeftOut) {
  Json json = hello_json();
  json["model"]["vocab"].erase("z");
  EXPECT_THAT(make(json)->encode("azzb"), ElementsAre('a', 'b'));
  json["model"]["vocab"]["<unk>"] = static_cast<int>('z');
  json["model"]["unk_token"] = "<unk>";
  EXPECT_THAT(make(json)->encode("azzb"), ElementsAre('a', 'z', 'z', 'b'));
  json["model"]["fuse_unk"] = true;
  EXPECT_THAT(make(json)->encode("azzbz"), ElementsAre('a', 'z', 'b', 'z'));
}

TEST(BpeTokenizerTest, TheStartTokenComesFromTemplateOrConfig) {
  Json json = hello_json();
  EXPECT_FALSE(make(json, {.bos_token = "<s>"})->adds_bos());
  EXPECT_THAT(make(json, {.bos_token = "<s>"})->encode("hello", {.add_bos = true}), ElementsAre(kHello));
  EXPECT_THAT(make(json, {.bos_token = "<s>", .add_bos_token = true})->encode("hello", {.add_bos = true}),
              ElementsAre(kStart, kHello));
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"<s>", {{"ids", {kStart}}}}}}};
  EXPECT_THAT(make(json)->encode("hello", {.add_bos = true}), ElementsAre(kStart, kHello));
  EXPECT_THAT(make(json)->encode("hello"), ElementsAre(kHello));
  EXPECT_EQ(make(json)->bos_id(), kStart);
  EXPECT_FALSE(make(json, {.add_bos_token = false})->adds_bos());
}

TEST(BpeTokenizerTest, RefusesAConfigThatNamesNoToken) {
  const std::string text = dump_json(hello_json());
  const auto error = [&](const TokenizerConfig& config) {
    const auto tokenizer = BpeTokenizer::make(*parse_tokenizer_file(text, "f"), config, text);
    return tokenizer ? "made" : tokenizer.error().message;
  };
  EXPECT_THAT(error({.bos_token = "<bos>"}), AllOf(HasSubstr("bos_token"), HasSubstr("<bos>")));
  EXPECT_THAT(error({.eos_token = "!"}), AllOf(HasSubstr("eos_token"), HasSubstr("\"!\"")));
  EXPECT_THAT(error({.add_bos_token = true}), HasSubstr("bos_token"));
}

TEST(BpeTokenizerTest, EqualDigestsMeanEqualFiles) {
  Json json = hello_json();
  const Digest digest = make(json)->digest();
  EXPECT_EQ(make(json)->digest(), digest);
  EXPECT_NE(make(json, {.bos_token = "<s>"})->digest(), digest);
  std::swap(json["model"]["merges"][0], json["model"]["merges"][1]);
  EXPECT_NE(make(json)->digest(), digest);
}

TEST(BpeTokenizerTest, LongTextsOfOnePieceTakeNoQuadraticTime) {
  const auto tokenizer = make(hello_json());
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a')).size(), std::size_t{1} << 20);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, ' ')).size(), std::size_t{1} << 20);
}

TEST(BpeTokenizerTest, ThreadsShareOne) {
  const auto tokenizer = make(hello_json());
  const auto expected = tokenizer->encode("hello hello 123");
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (bool& result : equal) {
    threads.emplace_back([&] {
      result = true;
      for (int i = 0; i < 100; ++i) result = result && tokenizer->encode("hello hello 123") == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(true));
}

// ---- Characters instead of bytes, as Llama 2 has them

// Ids: <unk> </s> then <0x00> ... and then the texts.
constexpr TokenId kUnk = 0, kStop = 1, kByte0 = 2, kFirstText = 258;

Json spaced_json(const std::vector<std::string>& texts, const std::vector<std::string>& merges) {
  Json json = tokenizer_json({});
  Json vocab = {{"<unk>", kUnk}, {"</s>", kStop}};
  for (unsigned byte = 0; byte < 256; ++byte) vocab[name_of_byte(static_cast<std::uint8_t>(byte))] = kByte0 + byte;
  for (const std::string& text : texts) vocab[text] = vocab.size();
  json["model"].update(Json{{"vocab", vocab}, {"merges", merges}, {"byte_fallback", true}, {"fuse_unk", true}});
  json["model"]["unk_token"] = "<unk>";
  json["added_tokens"] = {added_token(kUnk, "<unk>", true), added_token(kStop, "</s>", true)};
  json.update(*parse_json(R"({"pre_tokenizer": null,
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
                          "steps"));
  return json;
}

TEST(SpacedTokenizerTest, MergesCharactersAndFallsBackToBytes) {
  const auto tokenizer = make(spaced_json({"▁", "a", "b", "▁a", "▁ab"}, {"▁ a", "▁a b"}));
  constexpr TokenId kMark = kFirstText, kB = kFirstText + 2, kMarkA = kFirstText + 3, kMarkAB = kFirstText + 4;
  EXPECT_THAT(tokenizer->encode("ab ab  a"), ElementsAre(kMarkAB, kMarkAB, kMark, kMarkA));
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(kMarkAB));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
  EXPECT_THAT(tokenizer->encode("éb"), ElementsAre(kMark, kByte0 + 0xC3, kByte0 + 0xA9, kB));
  EXPECT_THAT(tokenizer->encode("\xC3\xFF"), ElementsAre(kMark, kByte0 + 0xC3, kByte0 + 0xFF));
  for (const std::string text : {"ab ab", " a", "  ", "é\n世 b", "a"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_TRUE(tokenizer->is_byte(kByte0));
  EXPECT_EQ(tokenizer->token_text(kByte0 + 'x'), "x");
  EXPECT_EQ(tokenizer->token_text(kMarkAB), " ab");
}

TEST(SpacedTokenizerTest, EachStretchBetweenControlTokensIsNormalizedOnItsOwn) {
  const auto tokenizer = make(spaced_json({"▁", "a", "▁a"}, {"▁ a"}), {.eos_token = "</s>"});
  EXPECT_THAT(tokenizer->encode("a</s>a", {.parse_special = true}), ElementsAre(kFirstText + 2, kStop, kFirstText + 2));
  const auto plain = tokenizer->encode("a</s>a");
  EXPECT_TRUE(std::ranges::none_of(plain, [&](TokenId id) { return tokenizer->is_special(id); }));
  EXPECT_EQ(tokenizer->decode(plain), "a</s>a");
}

TEST(SpacedTokenizerTest, WithoutByteTokensTheUnknownTokenStandsForARow) {
  Json json = spaced_json({"▁", "a"}, {});
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(make(json)->encode("aéüa"), ElementsAre(kFirstText, kFirstText + 1, kUnk, kFirstText + 1));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(make(json)->encode("éü"), ElementsAre(kFirstText, kUnk, kUnk));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(make(json)->encode("aé"), ElementsAre(kFirstText, kFirstText + 1));
}

// Texts are cut before the marks of spaces, unless a merge joins across one.
TEST(SpacedTokenizerTest, AMergeAcrossASpaceIsMade) {
  const auto across = make(spaced_json({"▁", "a", "a▁"}, {"a ▁"}));
  EXPECT_THAT(across->encode("a a"), ElementsAre(kFirstText, kFirstText + 2, kFirstText + 1));
  const auto marks = make(spaced_json({"▁", "a", "▁▁"}, {"▁ ▁"}));
  EXPECT_THAT(marks->encode("a    a"),
              ElementsAre(kFirstText, kFirstText + 1, kFirstText + 2, kFirstText + 2, kFirstText + 1));
}

TEST(SpacedTokenizerTest, NormalizedControlTokensAreFoundInPartsThatAllowThem) {
  Json json = spaced_json({"▁", "<", "t", ">", "x", "é"}, {});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  json["added_tokens"].push_back(added_token(264, "<T>", true));
  json["added_tokens"].back()["normalized"] = true;
  const auto tokenizer = make(json);
  constexpr TokenId kT = 264, kX = kFirstText + 4, kE = kFirstText + 5;
  EXPECT_THAT(tokenizer->encode("x<T>", {.parse_special = true}), ElementsAre(kX, kT));
  using Parts = std::vector<TextPart>;
  const auto ids = [&](const Parts& parts) { return tokenizer->encode_parts(parts); };
  EXPECT_THAT(ids(Parts{{"e", true}, {"\u0301<T>", false}, {"X<T>", true}}),
              ElementsAre(kE, kFirstText + 1, kFirstText + 2, kFirstText + 3, kX, kT));
  EXPECT_THAT(ids(Parts{{"<t>", false}, {"<T>", true}}),
              ElementsAre(kFirstText + 1, kFirstText + 2, kFirstText + 3, kT));
  // Where a step drops text across a border, what follows doesn't slip into the part before.
  json["normalizer"] = *parse_json(R"({"type": "Replace", "pattern": {"String": "xxxxxx"}, "content": ""})", "step");
  const auto dropping = make(json);
  EXPECT_THAT(dropping->encode_parts(Parts{{"<T>xxxxx", true}, {"x<T>", false}}),
              ElementsAre(kT, kFirstText + 1, kByte0 + 'T', kFirstText + 3));
}

TEST(SpacedTokenizerTest, LongTextsTakeNoQuadraticTime) {
  const auto tokenizer = make(spaced_json({"▁", "a", "▁a", "▁▁"}, {"▁ a", "▁ ▁"}));
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, ' ')).size(), (std::size_t{1} << 19) + 1);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a')).size(), std::size_t{1} << 20);
}

class LoadTokenizerTest : public ::testing::Test {
 protected:
  void write(std::string_view name, std::string_view content) { write_test_file(folder_.path() / name, content); }
  std::string load_error() {
    const auto tokenizer = load_tokenizer(folder_.path());
    return tokenizer ? "loaded" : tokenizer.error().message;
  }
  TemporaryFolder folder_ = *TemporaryFolder::create();
};

TEST_F(LoadTokenizerTest, ReadsAFolder) {
  write("tokenizer.json", dump_json(hello_json()));
  ASSERT_TRUE(load_tokenizer(folder_.path())) << load_error();
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>", "add_bos_token": true})");
  const auto tokenizer = load_tokenizer(folder_.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos_id(), kStart);
  EXPECT_THAT((*tokenizer)->eos_ids(), ElementsAre(kEnd));
  EXPECT_TRUE((*tokenizer)->adds_bos());
}

TEST_F(LoadTokenizerTest, NamesTheFileThatIsWrong) {
  EXPECT_THAT(load_error(), HasSubstr("tokenizer.json"));
  write("tokenizer.model", "");
  EXPECT_THAT(load_error(), HasSubstr("tokenizer.model alone isn't supported"));
  write("tokenizer.json", "{");
  EXPECT_THAT(load_error(), HasSubstr("tokenizer.json"));
  write("tokenizer.json", dump_json(hello_json()));
  for (const char* config : {"[]", "{", R"({"bos_token": 3})", R"({"bos_token": {"text": "<s>"}})",
                             R"({"add_bos_token": "yes"})", R"({"eos_token": "<nope>"})"}) {
    SCOPED_TRACE(config);
    write("tokenizer_config.json", config);
    EXPECT_THAT(load_error(), HasSubstr("tokenizer_config.json"));
  }
}

}  // namespace
}  // namespace nmc::model
