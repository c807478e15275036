#include "cli/setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nmc::cli {
namespace {

using ::testing::HasSubstr;

Setting of_kind(Kind kind, std::int64_t low = 0, std::int64_t high = 100) {
  return {.name = "some-thing", .kind = kind, .choices = {"red", "green"}, .low = low, .high = high};
}

std::string error_of(const Result<Value>& result) { return result ? "" : result.error().message; }

TEST(Setting, NamesOfFlagVariableAndKeyAgree) {
  EXPECT_EQ(variable_name(of_kind(Kind::kText)), "NANO_MOONCAKE_SOME_THING");
  EXPECT_EQ(key_name(of_kind(Kind::kText)), "some_thing");
}

TEST(Setting, BytesTakeBinarySuffixes) {
  const Setting setting = of_kind(Kind::kBytes, 0, std::numeric_limits<std::int64_t>::max());
  const auto bytes = [&](std::string_view text) { return std::get<std::int64_t>(*parse_value(setting, text, "x")); };
  EXPECT_EQ(bytes("0"), 0);
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("3k"), 3 << 10);
  EXPECT_EQ(bytes("3KiB"), 3 << 10);
  EXPECT_EQ(bytes("2 MiB"), 2 << 20);
  EXPECT_EQ(bytes("5g"), std::int64_t{5} << 30);
  EXPECT_EQ(bytes("8388607TiB"), std::int64_t{8388607} << 40);
}

TEST(Setting, BytesRefuseWhatIsNoSizeOrOverflows) {
  const Setting setting = of_kind(Kind::kBytes, 0, std::numeric_limits<std::int64_t>::max());
  for (const char* text : {"", "k", "-1", "1.5GiB", "1 GB", "1gg", "8388608TiB", "9223372036854775808", "0x10", "1 "}) {
    const bool trailing_space = std::string_view(text) == "1 ";
    EXPECT_EQ(parse_value(setting, text, "x").has_value(), trailing_space) << text;
  }
}

TEST(Setting, NumbersAreWholeAndInRange) {
  const Setting setting = of_kind(Kind::kInteger, 1, 100);
  EXPECT_EQ(parse_value(setting, "100", "x"), Value(std::int64_t{100}));
  for (const char* text : {"", "0", "101", "-5", "1.0", "1e2", "ten", "99999999999999999999", " 5", "+5"}) {
    EXPECT_FALSE(parse_value(setting, text, "x").has_value()) << text;
  }
}

TEST(Setting, ListsOfNumbersAreCommaSeparated) {
  const Setting setting = of_kind(Kind::kIntegers, 1, 100);
  EXPECT_EQ(parse_value(setting, "1,8,64", "x"), Value(std::vector<std::int64_t>{1, 8, 64}));
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1,101", "1 2"}) {
    EXPECT_FALSE(parse_value(setting, text, "x").has_value()) << text;
  }
}

TEST(Setting, ListsOfWordsAreCommaSeparatedAndKnown) {
  Setting setting = of_kind(Kind::kWords);
  setting.choices.clear();
  EXPECT_EQ(parse_value(setting, "a,b", "x"), Value(std::string("a,b")));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_FALSE(parse_value(setting, text, "x").has_value()) << text;
  }
  setting.choices = {"a", "b"};
  EXPECT_TRUE(parse_value(setting, "b,a", "x").has_value());
  EXPECT_EQ(error_of(parse_value(setting, "a,c", "--x")),
            "--x: \"a,c\": expected one or more of a, b, separated by commas");
}

TEST(Setting, SecondsAreFiniteAndInRange) {
  const Setting setting = of_kind(Kind::kSeconds);
  EXPECT_EQ(parse_value(setting, "0.25", "x"), Value(0.25));
  for (const char* text : {"", "nan", "inf", "-1", "1e300", "5s"}) {
    EXPECT_FALSE(parse_value(setting, text, "x").has_value()) << text;
  }
}

TEST(Setting, DurationsAreMillisecondsOrHaveAUnit) {
  const Setting setting = of_kind(Kind::kDuration, 0, std::numeric_limits<std::int64_t>::max());
  const auto milliseconds = [&](std::string_view text) { return parse_value(setting, text, "x"); };
  EXPECT_EQ(milliseconds("10000"), Value(std::int64_t{10'000}));
  EXPECT_EQ(milliseconds("500ms"), Value(std::int64_t{500}));
  EXPECT_EQ(milliseconds("5s"), Value(std::int64_t{5'000}));
  EXPECT_EQ(milliseconds("2m"), Value(std::int64_t{120'000}));
  EXPECT_EQ(milliseconds("1h"), Value(std::int64_t{3'600'000}));
  for (const char* text : {"", "s", "-1", "-1s", "1.5s", "5 s", "5S", "1d", "1sm", "9223372036854775807s"})
    EXPECT_FALSE(milliseconds(text).has_value()) << text;
  EXPECT_EQ(error_of(parse_value(of_kind(Kind::kDuration), "1h", "--ttl")),
            "--ttl: \"1h\": expected milliseconds from 0 to 100, plain or with ms, s, m or h");
}

TEST(Setting, ANumberOfAnySizeSaysSo) {
  Setting setting =
      of_kind(Kind::kNumber, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_value(setting, "-0.5", "x"), Value(-0.5));
  EXPECT_EQ(error_of(parse_value(setting, "much", "--x")), "--x: \"much\": expected a number of any size");
}

TEST(Setting, TextMayBeEmptyWhereItDoesNothing) {
  Setting setting = of_kind(Kind::kText);
  EXPECT_FALSE(parse_value(setting, "", "x").has_value());
  setting.without_effect = true;
  EXPECT_EQ(parse_value(setting, "", "x"), Value());
}

TEST(Setting, MessageNamesPlaceValueAndExpectation) {
  EXPECT_EQ(error_of(parse_value(of_kind(Kind::kInteger, 0, 65535), "70000", "--port")),
            "--port: \"70000\": expected a whole number from 0 to 65535");
  EXPECT_EQ(error_of(parse_value(of_kind(Kind::kChoice), "blue", "NANO_MOONCAKE_X")),
            "NANO_MOONCAKE_X: \"blue\": expected one of red, green");
  EXPECT_LT(error_of(parse_value(of_kind(Kind::kInteger), std::string(1'000'000, '9'), "--x")).size(), 200u);
}

TEST(Setting, WhatALaterVersionMayDoIsRefusedAsUnsupported) {
  Setting setting = of_kind(Kind::kChoice);
  setting.unsupported = {"green"};
  const Result<Value> result = parse_value(setting, "green", "--x");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(result.error().message, "--x: green is not supported by this version");

  Setting one = of_kind(Kind::kInteger);
  one.only = {"1"};
  EXPECT_TRUE(parse_value(one, "1", "--x").has_value());
  EXPECT_EQ(error_of(parse_value(one, "2", "--x")), "--x: 2 is not supported by this version, expected 1");
}

TEST(Setting, FileValuesKeepTheirJsonType) {
  EXPECT_EQ(value_from_json(of_kind(Kind::kInteger), 5, "f"), Value(std::int64_t{5}));
  EXPECT_EQ(value_from_json(of_kind(Kind::kBytes, 0, 1 << 30), "1m", "f"), Value(std::int64_t{1 << 20}));
  EXPECT_EQ(value_from_json(of_kind(Kind::kBytes, 0, 1 << 30), 7, "f"), Value(std::int64_t{7}));
  EXPECT_EQ(value_from_json(of_kind(Kind::kSwitch), true, "f"), Value(true));
  EXPECT_EQ(value_from_json(of_kind(Kind::kSeconds), 1.5, "f"), Value(1.5));
  EXPECT_EQ(value_from_json(of_kind(Kind::kText), nullptr, "f"), Value());
  EXPECT_THAT(error_of(value_from_json(of_kind(Kind::kInteger), "5", "f")), HasSubstr("expected a whole number"));
  EXPECT_THAT(error_of(value_from_json(of_kind(Kind::kInteger), 1.5, "f")), HasSubstr("1.5"));
  EXPECT_FALSE(value_from_json(of_kind(Kind::kText), 5, "f").has_value());
  EXPECT_FALSE(value_from_json(of_kind(Kind::kSwitch), "true", "f").has_value());
  EXPECT_FALSE(value_from_json(of_kind(Kind::kText), Json::array(), "f").has_value());
}

TEST(Setting, BytesArePrintedAsPeopleWriteThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{1} << 30), "1 GiB");
  EXPECT_EQ(format_bytes(~std::uint64_t{0}), "16777216 TiB");
}

}  // namespace
}  // namespace nmc::cli
