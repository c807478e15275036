#include "model/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "model/test_tokenizer_json.h"

namespace nmc::model {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Digits"}, {"individual_digits", true}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}, {"trim_offsets", false}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
         {"pair", Json::array()},
         {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {260}}, {"tokens", {"<s>"}}}}}}}}}};
  json["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteLevel"}}}}};
  const auto file = parse(json);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->pre_tokenizer.digits, PreTokenizer::Digits::kIndividual);
  EXPECT_TRUE(file->pre_tokenizer.add_prefix_space);
  EXPECT_FALSE(file->pre_tokenizer.use_pattern);
  EXPECT_EQ(file->template_bos, 260u);
}

TEST(TokenizerFileTest, ATemplateMayAddNothing) {
  Json json = good();
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                            {"special_tokens", Json::object()}};
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
  std::function<void(Json&)> spoil;
  ErrorCode code;
  std::vector<std::string> expected;
};

std::vector<BadFile> bad_files() {
  using C = ErrorCode;
  const auto set = [](const char* pointer, Json value) {
    return [pointer, value](Json& json) { json[Json::json_pointer(pointer)] = value; };
  };
  const auto remove = [](const char* name) { return [name](Json& json) { json.erase(name); }; };
  const Json sequence = {{"Sequence", {{"id", "A"}}}};
  const Json start = {{"SpecialToken", {{"id", "<s>"}}}};
  const auto post = [](Json single, Json ids) {
    return [single, ids](Json& json) {
      json["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single},
                                {"special_tokens", {{"<s>", {{"ids", ids}}}}}};
    };
  };
  const auto pre_tokenizers = [](Json steps) {
    return [steps](Json& json) { json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}}; };
  };
  const auto add = [](Json token) { return [token](Json& json) { json["added_tokens"].push_back(token); }; };
  return {
      {"not an object", [](Json& json) { json = Json::array(); }, C::kInvalidArgument, {"expected an object"}},
      {"no model", remove("model"), C::kInvalidArgument, {"`model`", "missing"}},
      {"model of another kind", set("/model", 3), C::kInvalidArgument, {"`model`", "expected an object"}},
      {"WordPiece", set("/model/type", "WordPiece"), C::kUnsupported, {"model.type", "BPE", "WordPiece"}},
      {"no type", set("/model/type", nullptr), C::kInvalidArgument, {"model.type"}},
      {"byte_fallback", set("/model/byte_fallback", true), C::kUnsupported, {"model.byte_fallback"}},
      {"dropout", set("/model/dropout", 0.1), C::kUnsupported, {"model.dropout"}},
      {"subword prefix", set("/model/continuing_subword_prefix", "##"), C::kUnsupported,
       {"model.continuing_subword_prefix", "##"}},
      {"word suffix", set("/model/end_of_word_suffix", "</w>"), C::kUnsupported, {"model.end_of_word_suffix", "</w>"}},
      {"no vocabulary", set("/model/vocab", nullptr), C::kInvalidArgument, {"model.vocab"}},
      {"empty vocabulary", set("/model/vocab", Json::object()), C::kInvalidArgument, {"model.vocab"}},
      {"id as text", set("/model/vocab/a", "97"), C::kInvalidArgument, {"model.vocab", "\"a\"", "\"97\""}},
      {"negative id", set("/model/vocab/a", -1), C::kInvalidArgument, {"model.vocab", "\"a\"", "-1"}},
      {"huge id", set("/model/vocab/a", 4294967295u), C::kCorrupt, {"4294967295", "far beyond"}},
      {"huger id", set("/model/vocab/a", UINT64_MAX), C::kCorrupt, {"18446744073709551615", "far beyond"}},
      {"id twice", set("/model/vocab/a", 98), C::kCorrupt, {"id 98", "\"a\"", "\"b\""}},
      {"empty token", set("/model/vocab/", 300), C::kInvalidArgument, {"model.vocab", "empty"}},
      {"no merges", set("/model/merges", nullptr), C::kInvalidArgument, {"model.merges"}},
      {"merges as text", set("/model/merges", "h e"), C::kInvalidArgument, {"model.merges"}},
      {"merge of one", set("/model/merges/1", "ll"), C::kInvalidArgument, {"model.merges[1]", "\"ll\""}},
      {"merge of three", set("/model/merges/1", "l l l"), C::kInvalidArgument, {"model.merges[1]"}},
      {"merge of one in a list", set("/model/merges/1", {"l"}), C::kInvalidArgument, {"model.merges[1]"}},
      {"merge of numbers", set("/model/merges/1", {1, 2}), C::kInvalidArgument, {"model.merges[1]"}},
      {"merge of an unknown token", set("/model/merges/1", "l zz"), C::kCorrupt, {"model.merges[1]", "\"zz\""}},
      {"merge to an unknown token", set("/model/merges/1", "l m"), C::kCorrupt, {"model.merges[1]", "\"lm\""}},
      {"unknown token unknown", set("/model/unk_token", "<unk>"), C::kCorrupt, {"model.unk_token", "<unk>"}},
      {"ignore_merges as number", set("/model/ignore_merges", 1), C::kInvalidArgument, {"model.ignore_merges"}},
      {"added tokens as object", set("/added_tokens", Json::object()), C::kInvalidArgument, {"added_tokens"}},
      {"added token as text", add("<x>"), C::kInvalidArgument, {"added_tokens[2]"}},
      {"added token without content", add({{"id", 262}}), C::kInvalidArgument, {"added_tokens[2].content"}},
      {"added token without id", add({{"content", "<x>"}}), C::kInvalidArgument, {"added_tokens[2].id"}},
      {"added token of no bytes", add(added_token(262, "", false)), C::kUnsupported, {"added_tokens[2].content"}},
      {"added token of many bytes", add(added_token(262, std::string(1025, 'x'), false)), C::kUnsupported,
       {"added_tokens[2].content", "1025"}},
      {"added token twice", add(added_token(260, "<s>", true)), C::kCorrupt, {"added_tokens[2]", "<s>"}},
      {"added token on a taken id", add(added_token(97, "<x>", true)), C::kCorrupt, {"id 97", "<x>"}},
      {"added token with another id", add(added_token(262, "hello", true)), C::kCorrupt, {"hello", "262", "259"}},
      {"added token with a far id", add(added_token(4000000000u, "<x>", true)), C::kCorrupt, {"4000000000"}},
      {"special token of one byte", add(added_token(static_cast<kv::TokenId>('!'), "!", true)), C::kUnsupported,
       {"\"!\"", "one byte"}},
      {"normalizer", set("/normalizer", {{"type", "NFC"}}), C::kUnsupported, {"normalizer", "NFC"}},
      {"no pre-tokenizer", set("/pre_tokenizer", nullptr), C::kUnsupported, {"pre_tokenizer"}},
      {"Metaspace", set("/pre_tokenizer", {{"type", "Metaspace"}}), C::kUnsupported, {"pre_tokenizer", "Metaspace"}},
      {"pre-tokenizer without type", set("/pre_tokenizer", Json::object()), C::kInvalidArgument,
       {"pre_tokenizer.type"}},
      {"Split", pre_tokenizers({{{"type", "Split"}}, {{"type", "ByteLevel"}}}), C::kUnsupported,
       {"pre_tokenizer.pretokenizers[0]", "Split"}},
      {"ByteLevel twice", pre_tokenizers({{{"type", "ByteLevel"}}, {{"type", "ByteLevel"}}}), C::kUnsupported,
       {"pre_tokenizer.pretokenizers[0]"}},
      {"Digits alone", set("/pre_tokenizer", {{"type", "Digits"}}), C::kUnsupported, {"pre_tokenizer", "Digits"}},
      {"sequence without list", set("/pre_tokenizer", {{"type", "Sequence"}}), C::kInvalidArgument,
       {"pre_tokenizer.pretokenizers"}},
      {"sequence of numbers", pre_tokenizers({1}), C::kInvalidArgument,
       {"pre_tokenizer.pretokenizers[0]"}},
      {"no decoder", set("/decoder", nullptr), C::kUnsupported, {"decoder"}},
      {"decoder Fuse", set("/decoder", {{"type", "Fuse"}}), C::kUnsupported, {"decoder", "Fuse"}},
      {"BertProcessing", set("/post_processor", {{"type", "BertProcessing"}}), C::kUnsupported,
       {"post_processor", "BertProcessing"}},
      {"template with an end", post({start, sequence, start}, {260}), C::kUnsupported, {"post_processor.single"}},
      {"template of nothing", post(Json::array(), {260}), C::kUnsupported, {"post_processor.single"}},
      {"template of numbers", post({1, 2}, {260}), C::kUnsupported, {"post_processor.single"}},
      {"template with a number for a sequence", post({start, {{"Sequence", {{"id", 7}}}}}, {260}), C::kUnsupported,
       {"post_processor.single"}},
      {"template of two ids", post({start, sequence}, {260, 261}), C::kCorrupt,
       {"post_processor.special_tokens.<s>.ids"}},
      {"template of an id too high", post({start, sequence}, {4000}), C::kCorrupt, {"special_tokens.<s>.ids"}},
      {"template of a negative id", post({start, sequence}, {-1}), C::kCorrupt, {"special_tokens.<s>.ids"}},
      {"template of an unlisted token", post({{{"SpecialToken", {{"id", "<x>"}}}}, sequence}, {260}),
       C::kInvalidArgument, {"special_tokens.<x>", "missing"}},
  };
}

TEST(TokenizerFileTest, RefusesABadFileNamingFileAndConstruct) {
  for (const BadFile& bad : bad_files()) {
    SCOPED_TRACE(bad.name);
    Json json = good();
    bad.spoil(json);
    const auto file = parse(json);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, bad.code) << file.error().message;
    EXPECT_THAT(file.error().message, HasSubstr("dir/tokenizer.json"));
    EXPECT_LT(file.error().message.size(), 500u);
    for (const std::string& part : bad.expected) EXPECT_THAT(file.error().message, HasSubstr(part));
  }
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
