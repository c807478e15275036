#include "base/json.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace nmc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What parse_json says about `text`: the value as JSON again, or the message of the error.
std::string parsed(std::string_view text, JsonLimits limits = {}) {
  const Result<Json> value = parse_json(text, "input", limits);
  if (value) return dump_json(*value);
  EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(is_valid_utf8(value.error().message));
  return value.error().message;
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, KeepsValuesAndTheOrderOfNames) {
  EXPECT_EQ(parsed(R"( {"z": [1, -2, 2.5, true, null], "a": {"b": "c"}} )"),
            R"({"z":[1,-2,2.5,true,null],"a":{"b":"c"}})");
  EXPECT_EQ(parsed("[]"), "[]");
  EXPECT_EQ(parsed("0"), "0");
  EXPECT_EQ(parsed(R"("")"), R"("")");
}

TEST(ParseJson, TellsWhichInputAndWhichByteIsWrong) {
  EXPECT_EQ(parsed("{\"a\": 1,}"), "input: not valid JSON at byte 9");
  EXPECT_THAT(parsed(""), HasSubstr("input: not valid JSON at byte"));
  EXPECT_THAT(parsed("[1] x"), HasSubstr("not valid JSON at byte 5"));
}

class BrokenJson : public testing::TestWithParam<const char*> {};

TEST_P(BrokenJson, IsRefused) { EXPECT_THAT(parsed(GetParam()), HasSubstr("not valid JSON at byte")); }

INSTANTIATE_TEST_SUITE_P(Texts, BrokenJson,
                         testing::Values("", " ", "{", "[", "[1", "{\"a\"", "{\"a\":", "{\"a\":1", "{a:1}", "{'a':1}",
                                         "[1,]", "[,1]", "{\"a\":1,}", "01", "+1", "1.", ".5", "1e", "NaN", "Infinity",
                                         "nul", "True", "\"a", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"",
                                         "\"\x01\"", "[1] [2]", "1 2", "// c\n1", "\"\xff\"", "\"\xc0\x80\"",
                                         "\"\xed\xa0\x80\"", "{\"a\":1 \"b\":2}", "]", "}", "[1}", "{\"a\":1]"));

TEST(ParseJson, EveryPrefixOfAValidTextIsRefusedOrWhole) {
  const std::string text = R"({"a": [1.5e3, "x\u00e9\ud83d\ude00", {"b": [true, false, null]}], "c": -0.25})";
  ASSERT_TRUE(parse_json(text, "input"));
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_json(std::string_view(text).substr(0, size), "input")) << size;
  }
}

TEST(ParseJson, LimitsDepth) {
  EXPECT_EQ(parsed(nested(64)), nested(64));
  EXPECT_EQ(parsed(nested(65)), "input: nesting too deep, expected at most 64 levels");
  EXPECT_EQ(parsed("[[1]]", {.max_depth = 1}), "input: nesting too deep, expected at most 1 levels");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += R"({"a":)";
  EXPECT_THAT(parsed(objects), HasSubstr("nesting too deep"));
}

TEST(ParseJson, DepthCostsNoStack) { EXPECT_THAT(parsed(std::string(5'000'000, '[')), HasSubstr("nesting too deep")); }

TEST(ParseJson, SiblingsAddNoDepth) {
  EXPECT_THAT(parsed("[[[1]],[[2]],[[3]]]", {.max_depth = 3}), HasSubstr("[[2]]"));
}

TEST(ParseJson, RefusesANameTwiceInOneObject) {
  EXPECT_EQ(parsed(R"({"a":1,"b":2,"a":3})"), R"(input: duplicate name "a")");
  EXPECT_EQ(parsed(R"({"a":1,"\u0061":3})"), R"(input: duplicate name "a")");
  EXPECT_THAT(parsed(R"([{"a":1},{"a":2,"x":{"a":3}}])"), HasSubstr(R"("x":{"a":3})"));
}

TEST(ParseJson, TheLastOfTwoNamesCountsWhereAllowed) {
  EXPECT_EQ(parsed(R"({"a":1,"b":2,"a":3})", {.allow_duplicate_keys = true}), R"({"a":3,"b":2})");
}

TEST(ParseJson, MessageQuotesNoMoreThanABeginning) {
  const std::string name = "\"" + std::string(100'000, 'n') + "\"";
  EXPECT_LT(parsed("{" + name + ":1," + name + ":2}").size(), 100u);
  EXPECT_LT(parsed(std::string(100'000, '9') + "e999").size(), 100u);
}

TEST(ParseJson, ALoneSurrogateBecomesTheReplacementCharacter) {
  const std::string replacement = "\"\xef\xbf\xbd\"";
  EXPECT_EQ(parsed(R"("\ud800")"), replacement);
  EXPECT_EQ(parsed(R"("\uDFFF")"), replacement);
  EXPECT_EQ(parsed(R"("\ud800x")"), "\"\xef\xbf\xbdx\"");
  EXPECT_EQ(parsed(R"("\ud800\u0041")"),
            "\"\xef\xbf\xbd"
            "A\"");
  EXPECT_EQ(parsed(R"("\ud83d\ud83d\ude00")"), "\"\xef\xbf\xbd\xf0\x9f\x98\x80\"");
  EXPECT_EQ(parsed(R"({"\udc00":1})"), "{" + replacement + ":1}");
}

TEST(ParseJson, SurrogatePairsAndEscapedBackslashesStay) {
  EXPECT_EQ(parsed(R"("\ud83d\ude00")"), "\"\xf0\x9f\x98\x80\"");
  EXPECT_EQ(parsed(R"("\\ud800")"), R"("\\ud800")");
  EXPECT_EQ(parsed(R"("\\\ud83d\ude00")"), "\"\\\\\xf0\x9f\x98\x80\"");
}

TEST(ParseJson, KeepsIntegersOf64BitsExactly) {
  EXPECT_EQ(parsed("[9223372036854775807,-9223372036854775808,18446744073709551615]"),
            "[9223372036854775807,-9223372036854775808,18446744073709551615]");
  EXPECT_EQ(parsed("18446744073709551616"), "1.8446744073709552e+19");
}

TEST(ParseJson, RefusesNumbersThatADoubleCannotHold) {
  EXPECT_EQ(parsed("[1e999]"), "input: number 1e999 is out of range");
  EXPECT_EQ(parsed("-1e999"), "input: number -1e999 is out of range");
  EXPECT_THAT(parsed(std::string(400, '9')), HasSubstr("is out of range"));
}

TEST(ParseJson, ManyNamesTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"name{}\":{},", i, i);
  text.back() = '}';
  const Result<Json> value = parse_json(text, "input");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 200'000u);
}

class Fields : public testing::Test {
 protected:
  const Json object_ = *parse_json(
      R"({"count": 7, "ratio": 0.5, "flag": true, "name": "x", "ids": [1, 2], "none": null, "object": {},
          "negative": -1, "huge": 18446744073709551615, "mixed": [1, 2.5], "big_ids": [18446744073709551615],
          "empty": [], "long": "0123456789012345678901234567890123456789\u00e9\u00e9"})",
      "input");
  const JsonFields fields_{object_};

  template <typename T>
  static std::string message(const Result<T>& result) {
    return result ? "no error" : result.error().message;
  }
};

TEST_F(Fields, GiveTypedValues) {
  EXPECT_EQ(*fields_.integer("count", 0, 10), 7);
  EXPECT_EQ(*fields_.number("ratio", 0, 1), 0.5);
  EXPECT_EQ(*fields_.number("count", 0, 10), 7.0);
  EXPECT_EQ(*fields_.boolean("flag"), true);
  EXPECT_EQ(*fields_.string("name"), "x");
  EXPECT_THAT(*fields_.integers("ids"), ElementsAre(1, 2));
  EXPECT_THAT(*fields_.integers("empty"), ElementsAre());
}

TEST_F(Fields, BoundsAreInclusive) {
  EXPECT_EQ(*fields_.integer("count", 7, 7), 7);
  EXPECT_EQ(message(fields_.integer("count", 8, 9)), "`count`: expected an integer from 8 to 9, got 7");
  EXPECT_EQ(message(fields_.integer("negative", 0, 9)), "`negative`: expected an integer from 0 to 9, got -1");
  EXPECT_EQ(*fields_.number("ratio", 0.5, 0.5), 0.5);
  EXPECT_EQ(message(fields_.number("ratio", 1, 2)), "`ratio`: expected a number from 1 to 2, got 0.5");
}

TEST_F(Fields, AnUnsignedNumberNeverWraps) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(message(fields_.integer("huge", kLow, kHigh)), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(message(fields_.integers("big_ids")), HasSubstr("got [18446744073709551615]"));
}

TEST_F(Fields, WrongTypesNameTheFieldAndTheValue) {
  EXPECT_EQ(message(fields_.integer("ratio", 0, 9)), "`ratio`: expected an integer from 0 to 9, got 0.5");
  EXPECT_EQ(message(fields_.integer("flag", 0, 9)), "`flag`: expected an integer from 0 to 9, got true");
  EXPECT_EQ(message(fields_.number("name", 0, 9)), "`name`: expected a number from 0 to 9, got \"x\"");
  EXPECT_EQ(message(fields_.boolean("count")), "`count`: expected true or false, got 7");
  EXPECT_EQ(message(fields_.string("ids")), "`ids`: expected a string, got [1,2]");
  EXPECT_EQ(message(fields_.integers("mixed")), "`mixed`: expected an array of integers, got [1,2.5]");
  EXPECT_EQ(message(fields_.integers("object")), "`object`: expected an array of integers, got {}");
}

TEST_F(Fields, LongValuesAreCutAtACharacter) {
  const std::string text = message(fields_.boolean("long"));
  EXPECT_THAT(text, HasSubstr("..."));
  EXPECT_LT(text.size(), 100u);
  for (std::size_t size = 0; size < 60; ++size) {
    const std::string cut = describe_json(object_["long"], size);
    EXPECT_TRUE(is_valid_utf8(cut)) << size;
    EXPECT_LE(cut.size(), std::max<std::size_t>(size, 3)) << size;
  }
}

TEST_F(Fields, NullCountsAsAbsent) {
  EXPECT_EQ(message(fields_.integer("none", 0, 9)), "`none`: missing");
  EXPECT_EQ(message(fields_.string("other")), "`other`: missing");
  EXPECT_EQ(*fields_.integer_or("none", 0, 9, 3), 3);
  EXPECT_EQ(*fields_.number_or("other", 0, 9, 2.5), 2.5);
  EXPECT_EQ(*fields_.boolean_or("other", true), true);
  EXPECT_EQ(*fields_.string_or("none", "d"), "d");
}

TEST_F(Fields, ADefaultDoesNotHideAWrongType) {
  EXPECT_FALSE(fields_.integer_or("name", 0, 9, 3));
  EXPECT_FALSE(fields_.number_or("name", 0, 9, 3));
  EXPECT_FALSE(fields_.boolean_or("count", true));
  EXPECT_FALSE(fields_.string_or("count", ""));
}

TEST_F(Fields, PathsNameTheWayDown) {
  const JsonFields inner(object_["object"], "stream_options");
  EXPECT_EQ(message(inner.boolean("include_usage")), "`stream_options.include_usage`: missing");
}

TEST(FieldsOfNoObject, FailByName) {
  const Json array = Json::array({1});
  EXPECT_FALSE(JsonFields(array, "body").integer("a", 0, 1));
  EXPECT_EQ(JsonFields(array).find("a"), nullptr);
}

TEST(DumpJson, ReplacesInvalidUtf8RatherThanFailing) {
  EXPECT_EQ(dump_json(Json("a\xff"
                           "b")),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(dump_json_pretty(Json{{"a", 1}}), "{\n  \"a\": 1\n}");
}

TEST(JsonTypeName, ReadsInASentence) {
  EXPECT_STREQ(json_type_name(Json()), "null");
  EXPECT_STREQ(json_type_name(Json::object()), "an object");
  EXPECT_STREQ(json_type_name(Json::array()), "an array");
  EXPECT_STREQ(json_type_name(Json("s")), "a string");
  EXPECT_STREQ(json_type_name(Json(1u)), "an integer");
  EXPECT_STREQ(json_type_name(Json(1.5)), "a number");
}

TEST(Utf8, AcceptsTheEdgesOfEachLength) {
  for (const std::string_view text : {"", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                      "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << testing::PrintToString(text);
  }
}

TEST(Utf8, RefusesOverlongSurrogateCutAndTooHigh) {
  for (const std::string_view text :
       {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xe2\x82", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "ok\xfe"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace nmc
