#include "model/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "model/test_tokenizer_json.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

using ::testing::HasSubstr;

Json good() {
  Json json = tokenizer_json({"h e", "l l", "he ll", "hell o"});
  json["added_tokens"].push_back(added_token(260, "<s>", true));
  json["added_tokens"].push_back(added_token(261, "<|tool|>", false));
  return json;
}

Result<TokenizerFile> parse(const Json& json) { return parse_tokenizer_file(dump_json(json), "dir/tokenizer.json"); }

TEST(TokenizerFileTest, ReadsVocabularyMergesAndAddedTokens) {
  const auto file = parse(good());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->texts.size(), 262u);
  EXPECT_EQ(file->texts[259], "hello");
  EXPECT_EQ(file->texts[260], "<s>");
  ASSERT_EQ(file->merges.size(), 4u);
  EXPECT_EQ(file->merges[3].left, 258u);
  EXPECT_EQ(file->merges[3].right, static_cast<kv::TokenId>('o'));
  EXPECT_EQ(file->merges[3].joined, 259u);
  ASSERT_EQ(file->added.size(), 2u);
  EXPECT_TRUE(file->added[0].special);
  EXPECT_FALSE(file->added[0].normalized);
  EXPECT_TRUE(file->added[1].normalized);
  EXPECT_EQ(file->unknown_id, std::nullopt);
}

TEST(TokenizerFileTest, TheByteAlphabetIsABijectionOntoPrintableCharacters) {
  std::set<char32_t> characters;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = byte_to_character(static_cast<std::uint8_t>(byte));
    characters.insert(character);
    EXPECT_EQ(character_to_byte(character), byte);
    EXPECT_EQ(char_classes(character) & kSpace, 0);
  }
  EXPECT_EQ(characters.size(), 256u);
  EXPECT_EQ(byte_to_character(' '), U'Ġ');
  EXPECT_EQ(byte_to_character('\n'), U'Ċ');
  EXPECT_EQ(character_to_byte(U' '), std::nullopt);
  EXPECT_EQ(character_to_byte(0x10FFFF), std::nullopt);
  EXPECT_EQ(bytes_of_text("ĠaĊ"), " a\n");
  EXPECT_EQ(bytes_of_text("a b"), "a b");  // a space is outside of the alphabet, so it stands for itself
}

TEST(TokenizerFileTest, ReadsTheStepsAroundTheModel) {
  Json json = good();
  json.update(*parse_json(R"({
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]},
    "post_processor": {"type": "Sequence", "processors": [
      {"type": "ByteLevel", "trim_offsets": false},
      {"type": "TemplateProcessing", "pair": [],
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}}}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}})",
                          "steps"));
  const auto file = parse(json);
  ASSERT_TRUE(file) << file.error().message;
  const auto& steps = file->pre_tokenizer.steps();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(std::get<DigitsStep>(steps[0]).individual);
  EXPECT_TRUE(std::get<ByteLevelStep>(steps[1]).add_prefix_space);
  EXPECT_FALSE(std::get<ByteLevelStep>(steps[1]).use_pattern);
  EXPECT_TRUE(file->byte_level);
  EXPECT_TRUE(file->decoder.byte_level);
  EXPECT_EQ(file->template_bos, 260u);
}

TEST(TokenizerFileTest, ReadsTheStepsOfLlama2) {
  Json json = good();
  json["model"]["byte_fallback"] = true;
  json.update(*parse_json(R"({
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
                          "steps"));
  const auto file = parse(json);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->normalizer.apply("a b"), "▁a▁b");
  EXPECT_TRUE(file->pre_tokenizer.steps().empty());
  EXPECT_FALSE(file->byte_level);
  EXPECT_TRUE(file->byte_fallback);
  EXPECT_TRUE(file->decoder.byte_fallback);
  EXPECT_EQ(file->decoder.text_of("▁a", true), " a");
  EXPECT_EQ(file->decoder.strip, U' ');
  EXPECT_EQ(file->decoder.strip_max, 1u);
}

TEST(TokenizerFileTest, ASplitByAKnownPatternHasAMatcherOfItsOwn) {
  Json json = good();
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", std::string(kLlama3Pattern)}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const auto known = parse(json);
  ASSERT_TRUE(known) << known.error().message;
  EXPECT_EQ(std::get<SplitStep>(known->pre_tokenizer.steps()[0]).piece_end, &llama3_piece_end);
  json["pre_tokenizer"]["pattern"]["Regex"] = R"(\p{L}+)";
  const auto other = parse(json);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(std::get<SplitStep>(other->pre_tokenizer.steps()[0]).piece_end, nullptr);
}

TEST(TokenizerFileTest, ATemplateMayAddNothing) {
  Json json = good();
  json["post_processor"] = *parse_json(
      R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {}})",
      "post-processor");
  const auto file = parse(json);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->template_bos, std::nullopt);
}

TEST(TokenizerFileTest, SkipsTheVersionLineOfOldMerges) {
  Json json = good();
  json["model"]["merges"].insert(json["model"]["merges"].begin(), "#version: 0.2");
  const auto file = parse(json);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->merges.size(), 4u);
}

struct BadFile {
  const char* name;
  const char* pointer;  // what is replaced in a good file
  const char* value;
  ErrorCode code;
  std::array<const char*, 3> expected;  // in the message
};

// Plain data: as nested initializer lists of JSON values these took the compiler minutes.
constexpr BadFile kBadFiles[] = {
    {"not an object", "", "[]", ErrorCode::kInvalidArgument, {"expected an object"}},
    {"model missing", "/model", "null", ErrorCode::kInvalidArgument, {"`model`", "missing"}},
    {"model of another kind", "/model", "3", ErrorCode::kInvalidArgument, {"`model`", "expected an object"}},
    {"WordPiece", "/model/type", R"("WordPiece")", ErrorCode::kUnsupported, {"model.type", "BPE", "WordPiece"}},
    {"no type", "/model/type", "null", ErrorCode::kInvalidArgument, {"model.type"}},
    {"byte_fallback", "/model/byte_fallback", "1", ErrorCode::kInvalidArgument, {"model.byte_fallback"}},
    {"dropout", "/model/dropout", "0.1", ErrorCode::kUnsupported, {"model.dropout"}},
    {"subword prefix",
     "/model/continuing_subword_prefix",
     R"("##")",
     ErrorCode::kUnsupported,
     {"model.continuing_subword_prefix", "##"}},
    {"word suffix",
     "/model/end_of_word_suffix",
     R"("</w>")",
     ErrorCode::kUnsupported,
     {"model.end_of_word_suffix", "</w>"}},
    {"no vocabulary", "/model/vocab", "null", ErrorCode::kInvalidArgument, {"model.vocab"}},
    {"empty vocabulary", "/model/vocab", "{}", ErrorCode::kInvalidArgument, {"model.vocab"}},
    {"id as text", "/model/vocab/a", R"("97")", ErrorCode::kInvalidArgument, {"model.vocab", "\"a\"", "\"97\""}},
    {"negative id", "/model/vocab/a", "-1", ErrorCode::kInvalidArgument, {"model.vocab", "\"a\"", "-1"}},
    {"huge id", "/model/vocab/a", "4294967295", ErrorCode::kCorrupt, {"4294967295", "far beyond"}},
    {"huger id", "/model/vocab/a", "18446744073709551615", ErrorCode::kCorrupt, {"18446744073709551615", "far beyond"}},
    {"id twice", "/model/vocab/a", "98", ErrorCode::kCorrupt, {"id 98", "\"a\"", "\"b\""}},
    {"empty token", "/model/vocab/", "300", ErrorCode::kInvalidArgument, {"model.vocab", "empty"}},
    {"no merges", "/model/merges", "null", ErrorCode::kInvalidArgument, {"model.merges"}},
    {"merges as text", "/model/merges", R"("h e")", ErrorCode::kInvalidArgument, {"model.merges"}},
    {"merge of one", "/model/merges/1", R"("ll")", ErrorCode::kInvalidArgument, {"model.merges[1]", "\"ll\""}},
    {"merge of three", "/model/merges/1", R"("l l l")", ErrorCode::kInvalidArgument, {"model.merges[1]"}},
    {"merge of one in a list", "/model/merges/1", R"(["l"])", ErrorCode::kInvalidArgument, {"model.merges[1]"}},
    {"merge of numbers", "/model/merges/1", "[1, 2]", ErrorCode::kInvalidArgument, {"model.merges[1]"}},
    {"merge of an unknown token", "/model/merges/1", R"("l zz")", ErrorCode::kCorrupt, {"model.merges[1]", "\"zz\""}},
    {"merge to an unknown token", "/model/merges/1", R"("l m")", ErrorCode::kCorrupt, {"model.merges[1]", "\"lm\""}},
    {"unknown token unknown", "/model/unk_token", R"("<unk>")", ErrorCode::kCorrupt, {"model.unk_token", "<unk>"}},
    {"ignore_merges as number", "/model/ignore_merges", "1", ErrorCode::kInvalidArgument, {"model.ignore_merges"}},
    {"added tokens as object", "/added_tokens", "{}", ErrorCode::kInvalidArgument, {"added_tokens"}},
    {"added token as text", "/added_tokens/-", R"("<x>")", ErrorCode::kInvalidArgument, {"added_tokens[2]"}},
    {"added token without content",
     "/added_tokens/-",
     R"({"id": 262})",
     ErrorCode::kInvalidArgument,
     {"added_tokens[2].content"}},
    {"added token without id",
     "/added_tokens/-",
     R"({"content": "<x>"})",
     ErrorCode::kInvalidArgument,
     {"added_tokens[2].id"}},
    {"added token of no bytes",
     "/added_tokens/-",
     R"({"id": 262, "content": ""})",
     ErrorCode::kUnsupported,
     {"added_tokens[2].content"}},
    {"added token twice",
     "/added_tokens/-",
     R"({"id": 260, "content": "<s>"})",
     ErrorCode::kCorrupt,
     {"added_tokens[2]", "<s>"}},
    {"added token on a taken id",
     "/added_tokens/-",
     R"({"id": 97, "content": "<x>"})",
     ErrorCode::kCorrupt,
     {"id 97", "<x>"}},
    {"added token with another id",
     "/added_tokens/-",
     R"({"id": 262, "content": "hello"})",
     ErrorCode::kCorrupt,
     {"hello", "262", "259"}},
    {"added token with a far id",
     "/added_tokens/-",
     R"({"id": 4000000000, "content": "<x>"})",
     ErrorCode::kCorrupt,
     {"4000000000"}},
    {"special token of one byte",
     "/added_tokens/-",
     R"({"id": 33, "content": "!", "special": true})",
     ErrorCode::kUnsupported,
     {"\"!\"", "one byte"}},
    {"flag as number",
     "/added_tokens/-",
     R"({"id": 262, "content": "<x>", "lstrip": 1})",
     ErrorCode::kInvalidArgument,
     {"added_tokens[2].lstrip"}},
    {"normalizer", "/normalizer", R"({"type": "Precompiled"})", ErrorCode::kUnsupported, {"normalizer", "Precompiled"}},
    {"normalizer inside of a sequence",
     "/normalizer",
     R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "ByteLevel"}]})",
     ErrorCode::kUnsupported,
     {"normalizer.normalizers[1]", "ByteLevel"}},
    {"Prepend without text", "/normalizer", R"({"type": "Prepend"})", ErrorCode::kInvalidArgument, {"prepend"}},
    {"Strip without sides", "/normalizer", R"({"type": "Strip"})", ErrorCode::kInvalidArgument, {"strip_left"}},
    {"Replace without pattern",
     "/normalizer",
     R"({"type": "Replace", "content": ""})",
     ErrorCode::kInvalidArgument,
     {"normalizer.pattern", "missing"}},
    {"Replace of nothing",
     "/normalizer",
     R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
     ErrorCode::kUnsupported,
     {"normalizer.pattern.String"}},
    {"Replace by a long text",
     "/normalizer",
     R"({"type": "Sequence", "normalizers": [
         {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaa"},
         {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaa"}]})",
     ErrorCode::kUnsupported,
     {"normalizer.normalizers[1]", "121 times"}},
    {"Metaspace of two characters",
     "/pre_tokenizer",
     R"({"type": "Metaspace", "replacement": "__"})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.replacement", "one character", "__"}},
    {"Metaspace of another scheme",
     "/pre_tokenizer",
     R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.prepend_scheme", "last"}},
    {"pre-tokenizer without type", "/pre_tokenizer", "{}", ErrorCode::kInvalidArgument, {"pre_tokenizer.type"}},
    {"Split of no pattern",
     "/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.pretokenizers[0].pattern", "missing"}},
    {"Split of another kind of pattern",
     "/pre_tokenizer",
     R"({"type": "Split", "pattern": {"Glob": "*"}, "behavior": "Isolated", "invert": false})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.pattern.String"}},
    {"Split of a bad pattern",
     "/pre_tokenizer",
     R"({"type": "Split", "pattern": {"Regex": "a(b"}, "behavior": "Isolated", "invert": false})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.pattern.Regex", "`(` without `)`"}},
    {"Split of a pattern that isn't understood",
     "/pre_tokenizer",
     R"({"type": "Split", "pattern": {"Regex": "(?<=a)b"}, "behavior": "Isolated", "invert": false})",
     ErrorCode::kUnsupported,
     {"pre_tokenizer.pattern.Regex", "byte 0"}},
    {"Split of another behaviour",
     "/pre_tokenizer",
     R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Doubled", "invert": false})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.behavior", "Doubled"}},
    {"BertPreTokenizer",
     "/pre_tokenizer",
     R"({"type": "BertPreTokenizer"})",
     ErrorCode::kUnsupported,
     {"pre_tokenizer", "BertPreTokenizer"}},
    {"ByteLevel twice",
     "/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})",
     ErrorCode::kUnsupported,
     {"pre_tokenizer.pretokenizers[0]"}},
    {"sequence without list",
     "/pre_tokenizer",
     R"({"type": "Sequence"})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.pretokenizers"}},
    {"sequence of numbers",
     "/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [1]})",
     ErrorCode::kInvalidArgument,
     {"pre_tokenizer.pretokenizers[0]"}},
    {"no decoder", "/decoder", "null", ErrorCode::kUnsupported, {"decoder"}},
    {"decoder WordPiece", "/decoder", R"({"type": "WordPiece"})", ErrorCode::kUnsupported, {"decoder", "WordPiece"}},
    {"decoder with ByteLevel among others",
     "/decoder",
     R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]})",
     ErrorCode::kUnsupported,
     {"decoder.decoders[1]", "ByteLevel"}},
    {"decoder that replaces after Fuse",
     "/decoder",
     R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
         {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})",
     ErrorCode::kUnsupported,
     {"decoder.decoders[1]", "Replace"}},
    {"decoder that strips the end",
     "/decoder",
     R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
         {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
     ErrorCode::kUnsupported,
     {"decoder.decoders[1]", "Strip"}},
    {"decoder that strips a negative number",
     "/decoder",
     R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
     ErrorCode::kInvalidArgument,
     {"decoder.start"}},
    {"BertProcessing",
     "/post_processor",
     R"({"type": "BertProcessing"})",
     ErrorCode::kUnsupported,
     {"post_processor", "BertProcessing"}},
    {"template with an end",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": )"
     R"("A"}}, {"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": {"ids": [260]}}})",
     ErrorCode::kUnsupported,
     {"post_processor.single"}},
    {"template of nothing",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [], "special_tokens": {"<s>": {"ids": [260]}}})",
     ErrorCode::kUnsupported,
     {"post_processor.single"}},
    {"template of numbers",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [1, 2], "special_tokens": {"<s>": {"ids": [260]}}})",
     ErrorCode::kUnsupported,
     {"post_processor.single"}},
    {"template with a number for a name",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": )"
     R"(7}}], "special_tokens": {"<s>": {"ids": [260]}}})",
     ErrorCode::kUnsupported,
     {"post_processor.single"}},
    {"template of two ids",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": )"
     R"("A"}}], "special_tokens": {"<s>": {"ids": [260, 261]}}})",
     ErrorCode::kCorrupt,
     {"special_tokens.<s>.ids"}},
    {"template of an id too high",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": )"
     R"("A"}}], "special_tokens": {"<s>": {"ids": [4000]}}})",
     ErrorCode::kCorrupt,
     {"special_tokens.<s>.ids"}},
    {"template of a negative id",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": )"
     R"("A"}}], "special_tokens": {"<s>": {"ids": [-1]}}})",
     ErrorCode::kCorrupt,
     {"special_tokens.<s>.ids"}},
    {"template of an unlisted token",
     "/post_processor",
     R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}, {"Sequence": {"id": )"
     R"("A"}}], "special_tokens": {"<s>": {"ids": [260]}}})",
     ErrorCode::kInvalidArgument,
     {"special_tokens.<x>", "missing"}},
};

TEST(TokenizerFileTest, RefusesABadFileNamingFileAndConstruct) {
  for (const BadFile& bad : kBadFiles) {
    SCOPED_TRACE(bad.name);
    Json json = good();
    json[Json::json_pointer(bad.pointer)] = *parse_json(bad.value, "value");
    const auto file = parse(json);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, bad.code) << file.error().message;
    EXPECT_THAT(file.error().message, HasSubstr("dir/tokenizer.json"));
    EXPECT_LT(file.error().message.size(), 500u);
    for (const char* part : bad.expected) {
      if (part == nullptr) continue;
      EXPECT_THAT(file.error().message, HasSubstr(part));
    }
  }
}

TEST(TokenizerFileTest, AddedTokensHaveABoundedLength) {
  Json json = good();
  json["added_tokens"].push_back(added_token(262, std::string(kAddedTokenBytesMax, 'x'), false));
  EXPECT_TRUE(parse(json));
  json["added_tokens"].push_back(added_token(263, std::string(kAddedTokenBytesMax + 1, 'y'), false));
  EXPECT_THAT(parse(json).error().message, HasSubstr("added_tokens[3].content"));
}

TEST(TokenizerFileTest, RefusesWhatIsNoJson) {
  const std::string whole = dump_json(tokenizer_json({"h e"}));
  for (std::size_t size = 0; size < whole.size(); size += 37) {
    EXPECT_FALSE(parse_tokenizer_file(std::string_view(whole).substr(0, size), "f")) << size;
  }
  EXPECT_THAT(parse_tokenizer_file(std::string(10'000, '['), "f").error().message, HasSubstr("nesting too deep"));
  EXPECT_THAT(parse_tokenizer_file("{\"model\": 1, \"model\": 2}", "f").error().message, HasSubstr("duplicate"));
}

}  // namespace
}  // namespace nmc::model
