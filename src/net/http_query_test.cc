#include "net/http_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::net {
namespace {

using ::testing::HasSubstr;

std::string decoded(std::string_view text) {
  const Result<std::string> result = decode_query_text(text);
  EXPECT_TRUE(result.has_value()) << text;
  return result.value_or("(error)");
}

TEST(HttpQuery, DecodesOnce) {
  EXPECT_EQ(decoded("a%2Fb%2fc"), "a/b/c");
  EXPECT_EQ(decoded("%2541"), "%41");
  EXPECT_EQ(decoded("%E9%8D%B5"), "\xE9\x8D\xB5");
  EXPECT_EQ(decoded("%00%ff"), std::string("\0\xff", 2));
  EXPECT_EQ(decoded("x=y?z/\xE9"), "x=y?z/\xE9");
  EXPECT_EQ(decoded(""), "");
}

TEST(HttpQuery, PlusIsASpaceAndItsEscapeAPlus) { EXPECT_EQ(decoded("a+b%2Bc%20d"), "a b+c d"); }

TEST(HttpQuery, RefusesMalformedEscapesAndSaysWhere) {
  for (const char* text : {"%", "%4", "ab%", "%g0", "%0g", "%%41", "% 41", "%+1", "%-1"}) {
    EXPECT_FALSE(decode_query_text(text).has_value()) << text;
  }
  const auto refused = decode_query_text("abc%4");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("byte 3"));
}

TEST(HttpQuery, FindsTheFirstOfAName) {
  const struct {
    const char* query;
    std::optional<std::string> value;
  } cases[] = {
      {"", std::nullopt},
      {"&&", std::nullopt},
      {"=x", std::nullopt},
      {"keys=x", std::nullopt},
      {"Key=x", std::nullopt},
      {"key", ""},
      {"key=", ""},
      {"key=&key=x", ""},
      {"key=x", "x"},
      {"key=x&key=y", "x"},
      {"a=b&key=x=y&c", "x=y"},
      {"&&key=x&", "x"},
      {"k%65y=x", "x"},
      {"a%=1&b=%zz&key=x", "x"},  // what is wrong elsewhere doesn't matter
      {"key=a%26b%3Dc", "a&b=c"},
  };
  for (const auto& c : cases) {
    const auto value = query_value(c.query, "key");
    ASSERT_TRUE(value.has_value()) << c.query;
    EXPECT_EQ(*value, c.value) << c.query;
  }
  EXPECT_FALSE(query_value("key=%zz&key=x", "key").has_value());
}

}  // namespace
}  // namespace nmc::net
