#include "model/jinja_lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/jinja_test_support.h"

namespace nmc::model::jinja {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view source) {
  const auto tokens = tokenize(source);
  return tokens ? "no error" : tokens.error().message;
}

TEST(JinjaLexer, ABlockTagTakesItsLineBreakAndTheSpacesBeforeIt) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
  EXPECT_EQ(rendered("a  {% if true %} b {% endif %}"), "a   b ");  // other text on the line: spaces stay
  EXPECT_EQ(rendered("  {# note #}\nx"), "x");
  EXPECT_EQ(rendered("a\n  {{ 1 }}\n  b"), "a\n  1\n  b");  // not for values
  EXPECT_EQ(rendered("{{ 1 }}\n\n"), "1\n");                // one line break at the end goes
  EXPECT_EQ(rendered("a\r\nb\rc{{ '\r\n' }}"), "a\nb\nc\n");
}

TEST(JinjaLexer, SignsStripMoreOrLess) {
  EXPECT_EQ(rendered("a \n {%- if true -%} \n b \n {%- endif -%} \n c"), "abc");
  EXPECT_EQ(rendered("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(rendered("a \n {#- x -#} \n b"), "ab");
  EXPECT_EQ(rendered("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(rendered("\xE3\x80\x80{%- if true -%}\xE2\x80\x83\xC2\x85z{% endif %}"),
            "z");  // all white space of Unicode
}

TEST(JinjaLexer, RawTextIsTakenAsItIs) {
  EXPECT_EQ(rendered("{% raw %}{{ x }}{% if %}{# #}{% endraw %}"), "{{ x }}{% if %}{# #}");
  EXPECT_EQ(rendered("a {%- raw -%} {{ b }} {%- endraw -%} c"), "a{{ b }}c");
  EXPECT_EQ(rendered("{% raw %}\na\n{% endraw %}\nb"), "\na\nb");
  EXPECT_THAT(error_of("x\n{% raw %}abc"), HasSubstr("line 2: `raw` without `endraw`"));
}

TEST(JinjaLexer, StringsHavePythonsEscapes) {
  EXPECT_EQ(rendered(R"({{ 'a\n\t\\\'\"\x41\u00e9\U0001F600\101\q' }})"), "a\n\t\\'\"A\u00e9\U0001F600A\\q");
  EXPECT_EQ(rendered("{{ 'a\\\nb' ~ \"it's\" 'x' }}"), "abit'sx");
  EXPECT_EQ(rendered(R"({{ '\ud800' }})"), "\uFFFD");
  EXPECT_THAT(error_of(R"({{ '\x4' }})"), HasSubstr("2 hexadecimal digits"));
  EXPECT_THAT(error_of("{{ 'abc }}"), HasSubstr("a string without its end"));
}

TEST(JinjaLexer, NumbersHavePythonsForms) {
  EXPECT_EQ(rendered("{{ [1_000, 0x1F, 0o17, 0b101, 1.5, 1e3, 2.5E-1, 00] }}"),
            "[1000, 31, 15, 5, 1.5, 1000.0, 0.25, 0]");
  EXPECT_EQ(rendered("{{ [[1, 2], [3, 4]].1.0 }}"), "3");
  EXPECT_THAT(error_of("{{ 9223372036854775808 }}"), HasSubstr("more than 64 bits"));
}

TEST(JinjaLexer, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n\n{{ ? }}"), "line 3: unexpected character `?`");
  EXPECT_EQ(error_of("{{ (1] }}"), "line 1: unexpected `]`, expected `)`");
  EXPECT_EQ(error_of("{{ 1) }}"), "line 1: unexpected `)`");
  EXPECT_EQ(error_of("\n{# a"), "line 2: a comment without its end `#}`");
  EXPECT_EQ(error_of("\n{{ a"), "line 2: a tag without its end `}}`");
  EXPECT_EQ(error_of("{% if x }}"), "line 1: unexpected `}`");
}

}  // namespace
}  // namespace nmc::model::jinja
