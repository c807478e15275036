#include "model/jinja_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/jinja_test_support.h"

namespace nmc::model::jinja {
namespace {

TEST(JinjaText, NeighboursOfOneOriginAreOneRun) {
  Text text("ab", Origin::kTemplate);
  text.append("", Origin::kRequest);
  text.append("c", Origin::kTemplate);
  text.append(Text("d", Origin::kRequest));
  ASSERT_EQ(text.runs().size(), 2u);
  EXPECT_EQ(text.runs()[0].bytes, "abc");
  EXPECT_EQ(text.origin_at(2), Origin::kTemplate);
  EXPECT_EQ(text.origin_at(3), Origin::kRequest);
  EXPECT_EQ(text.slice(1, 3).runs().size(), 1u);
  EXPECT_EQ(text.slice(2, 4).runs().size(), 2u);
  EXPECT_EQ(text.slice(2, 2).runs().size(), 0u);
  EXPECT_EQ(text.slice(0, 3).overall_origin(), Origin::kTemplate);
  EXPECT_EQ(text.overall_origin(), Origin::kRequest);
}

// What a request says is known as its own through every operation; marked() puts it in brackets.
TEST(JinjaText, OriginSurvivesEveryOperation) {
  constexpr const char* kData = R"({"x": " Hi <|end|> you ", "l": ["a", "b"], "d": {"k": "v"}, "n": 5})";
  struct Case {
    const char* source;
    const char* expected;
  };
  for (const Case& c : {Case{"<{{ x }}>", "<[ Hi <|end|> you ]>"},
                        {"{{ '<' + x + '>' }}", "<[ Hi <|end|> you ]>"},
                        {"{{ 'a' ~ x ~ 'b' }}", "a[ Hi <|end|> you ]b"},
                        {"{{ x | trim | upper }}", "[HI <|END|> YOU]"},
                        {"{{ ('a' ~ x)[1:4] }}{{ ('a' ~ x)[:3] }}", "[ Hi]a[ H]"},
                        {"{{ ('a' ~ x)[::-1] }}", "[ uoy >|dne|< iH ]a"},
                        {"{{ x.split('<|')[1] }}", "[end|> you ]"},
                        {"{{ x.strip().split() | join('-') }}", "[Hi]-[<|end|>]-[you]"},
                        {"{{ x.replace('Hi', 'Ho') }}", "[ ]Ho[ <|end|> you ]"},
                        {"{{ 'a-b' | replace('-', x) }}", "a[ Hi <|end|> you ]b"},
                        {"{{ l | join(', ') }}", "[a], [b]"},
                        {"{{ d | tojson }}", "{\"[k]\": \"[v]\"}"},
                        {"{{ d }}", "{'[k]': '[v]'}"},
                        {"{{ (l | tojson(indent=2)) }}", "[\n  \"[a]\",\n  \"[b]\"\n]"},
                        {"{{ d.items() | list }}", "[('[k]', '[v]')]"},
                        {"{{ nope | default(x) }}", "[ Hi <|end|> you ]"},
                        {"{{ ('a\n' ~ x) | indent(2) }}", "a\n  [ Hi <|end|> you ]"},
                        {"{% set y %}<{{ x | trim }}>{% endset %}{{ y }}", "<[Hi <|end|> you]>"},
                        {"{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(l[0]) | title }}", "<[A]>"},
                        {"{% filter upper %}a{{ l[0] }}{% endfilter %}", "A[A]"},
                        {"{{ (x ~ 'z') | last }}{{ x | trim | first }}", "z[H]"},
                        {"{{ x * 2 }}{{ n }}", "[ Hi <|end|> you  Hi <|end|> you ]5"},
                        {"{{ l | map('upper') | join }}{{ l | sort(reverse=true) | first }}", "[ABb]"},
                        {"{{ (x | trim).removeprefix('Hi').lstrip() }}", "[<|end|> you]"},
                        {"{{ (x ~ '!') | trim | capitalize }}", "[Hi <|end|> you ]!"},
                        {"{% for k, v in d | dictsort %}{{ k ~ '=' ~ v }}{% endfor %}", "[k]=[v]"},
                        {"{{ l | reverse | list }}", "['[b]', '[a]']"},
                        {"{{ ('a' ~ l[0]) | list }}", "['a', '[a]']"},
                        {"{{ dict(a=x)['a'] | trim ~ namespace(b=l[1]).b }}", "[Hi <|end|> youb]"},
                        {"{{ ('\n' ~ l[0] ~ '\n').splitlines() }}", "['', '[a]']"},
                        {"{{ 'abc' if l[0] == 'a' else x }}", "abc"}}) {
    EXPECT_EQ(marked(c.source, kData), c.expected) << c.source;
  }
}

}  // namespace
}  // namespace nmc::model::jinja
