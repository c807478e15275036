#include "model/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/jinja_test_support.h"

namespace nmc::model::jinja {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string value(std::string_view expression, std::string_view variables = "{}") {
  return rendered(fmt::format("{{{{ {} }}}}", expression), variables);
}

// ---- Values
// ----------------------------------------------------------------------------------------------------------

TEST(JinjaTemplate, ValuesPrintAsPythonPrintsThem) {
  EXPECT_EQ(value("[true, none, 1.0, 1e16, 1e-5, 0.1, 'a\\'b', \"q\", {'k': (1,)}]"),
            R"([True, None, 1.0, 1e+16, 1e-05, 0.1, "a'b", 'q', {'k': (1,)}])");
  EXPECT_EQ(value("x", R"({"x": ["\n\u0000\u007f\u00a0\u00e9\u200b\ud83d\ude00", null, -0.0]})"), R"(['\n\x00\x7f\xa0)"
                                                                                                  "\u00e9"
                                                                                                  R"(\u200b)"
                                                                                                  "\U0001F600"
                                                                                                  R"(', None, -0.0])");
  EXPECT_EQ(value("range(3)") + value("{'a': 1}.items()"), "range(0, 3)dict_items([('a', 1)])");
  EXPECT_THAT(value("[1]|map('string')"), HasSubstr("an iterator can't be printed"));
}

TEST(JinjaTemplate, ArithmeticIsPythons) {
  EXPECT_EQ(value("[7 // 2, -7 // 2, -7 % 3, 7 % -3, 7 / 2, 2 ** 10, 2 ** -1, -7.5 // 2, -7.5 % 2, True + 1]"),
            "[3, -4, 2, -2, 3.5, 1024, 0.5, -4.0, 0.5, 2]");
  EXPECT_EQ(value("2 ** 3 ** 2"), "64");  // from the left, as Jinja has it
  EXPECT_EQ(value("'ab' * 2 + 'c'") + value("[1] + [2] * 2"), "ababc[1, 2, 2]");
  EXPECT_THAT(value("9223372036854775807 + 1"), HasSubstr("`+` has more than 64 bits"));
  EXPECT_THAT(value("1 / 0"), HasSubstr("`/` by zero"));
  EXPECT_THAT(value("'a' + 1"), HasSubstr("`+` doesn't go with a string and an integer"));
  EXPECT_THAT(value("'%s' % 1"), HasSubstr("formatting"));
}

TEST(JinjaTemplate, ComparisonsChainAndMixNumbers) {
  EXPECT_EQ(
      value("[1 < 2 < 3, 1 < 2 > 5, 1 == 1.0, True == 1, 'a' < 'b', [1, 2] < [1, 3], 'b' in 'abc', 1 not in [2]]"),
      "[True, False, True, True, True, True, True, True]");
  EXPECT_EQ(value("'k' in {'k': 1}") + value("(1, 2) == [1, 2]"), "TrueFalse");
  EXPECT_THAT(value("1 < 'a'"), HasSubstr("no order"));
  EXPECT_THAT(value("1 in 'abc'"), HasSubstr("expected a string before it"));
}

TEST(JinjaTemplate, SlicesAndIndicesCountCharacters) {
  EXPECT_EQ(value("s[1:] ~ s[::-1] ~ s[-1] ~ s[0]", R"({"s": "aé😀"})"), "é😀😀éa😀a");
  EXPECT_EQ(value("[[0,1,2,3,4][::2], [0,1,2,3][-2:], (1,2,3)[5:], [0,1,2][2:0:-1], range(10)[2:8:3]]"),
            "[[0, 2, 4], [2, 3], (), [2, 1], range(2, 8, 3)]");
  EXPECT_EQ(value("[1][5] ~ 'a'[9] ~ {}['x'] ~ none.x"), "");
  EXPECT_THAT(value("[1][::0]"), HasSubstr("the step is 0"));
}

TEST(JinjaTemplate, UndefinedValuesAreLenientUntilTheyAreUsed) {
  EXPECT_EQ(value("x ~ (x|length) ~ (x|join) ~ (not x) ~ (x == y)"), "0TrueTrue");
  EXPECT_EQ(rendered("{% for a in x %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(value("x.a"), "error: t, line 1: `x` is undefined");
  EXPECT_EQ(value("m.a.b", R"({"m": {}})"), "error: t, line 1: a mapping has no member `a`");
  EXPECT_EQ(value("x + 1"), "error: t, line 1: `x` is undefined");
  EXPECT_EQ(value("f(1)"), "error: t, line 1: `f` is undefined");
  EXPECT_THAT(value("x|tojson"), HasSubstr("an undefined value has no form in JSON"));
}

// ---- Statements
// ------------------------------------------------------------------------------------------------------

TEST(JinjaTemplate, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(rendered("{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
                     "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ x }}{{ loop.nextitem }};"
                     "{% endfor %}"),
            "1032TrueFalse3ab;2121FalseFalse3abc;3210FalseTrue3bc;");
  EXPECT_EQ(rendered("{% for x in [1,1,2] %}{{ loop.cycle('a','b') }}{{ loop.changed(x) }} {% endfor %}"),
            "aTrue bFalse aTrue ");
  EXPECT_EQ(rendered("{% for x in [1,2,3,4] if x is even %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}"),
            "1/2:2 2/2:4 ");
  EXPECT_EQ(rendered("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}"), "a1b2");
  EXPECT_EQ(
      rendered("{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}"
               "{% endfor %}"),
      "13");
  EXPECT_EQ(rendered("{% for x in [1] %}{% continue %}{% else %}none{% endfor %}"), "none");  // a round cut short: none
  EXPECT_THAT(rendered("{% for a, b in [(1, 2, 3)] %}{% endfor %}"), HasSubstr("2 names for 3 values"));
}

// The test of a loop sees what the body changed, because items are tested one by one.
TEST(JinjaTemplate, ALoopsTestRunsWhenItsItemIsNeeded) {
  EXPECT_EQ(
      rendered(
          "{% set n = namespace(on=true) %}{% for x in [1,2,3] if n.on %}{{ x }}{% set n.on = false %}{% endfor %}"),
      "1");
}

TEST(JinjaTemplate, NamesBelongToTheirBlock) {
  EXPECT_EQ(rendered("{% set x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}"), "121");
  EXPECT_EQ(rendered("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(rendered("{% set n = namespace(a=1) %}{% for i in [1] %}{% set n.a = 2 %}{% endfor %}{{ n.a }}"), "2");
  EXPECT_EQ(rendered("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}"), "3");
  EXPECT_EQ(rendered("{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}"), "123");
  EXPECT_EQ(rendered("{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}{% set y | upper %}b{% endset %}{{ y }}"), "A1B");
  EXPECT_EQ(rendered("{% filter upper | trim %} abc {% endfilter %}"), "ABC");
  EXPECT_EQ(rendered("{% generation %}a{% endgeneration %}"), "a");
  EXPECT_THAT(rendered("{% set x.a = 1 %}"), HasSubstr("`x` is no namespace"));
}

TEST(JinjaTemplate, MacrosTakeArgumentsByPlaceNameAndDefault) {
  EXPECT_EQ(
      rendered("{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} {{ f(b=7) }}"),
      "122 125 77");
  EXPECT_EQ(rendered("{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}"), "<1>");
  EXPECT_EQ(rendered("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"), "3210");
  EXPECT_EQ(rendered("{% macro f() %}{{ late }}{% endmacro %}{% set late = 1 %}{{ f() }}"), "1");
  EXPECT_THAT(rendered("{% macro f() %}{% endmacro %}{{ f(1) }}"), HasSubstr("`f` takes at most 0 arguments, got 1"));
  EXPECT_THAT(rendered("{% macro f() %}{% endmacro %}{{ f(x=1) }}"), HasSubstr("takes no argument `x`"));
}

// ---- Environment
// -----------------------------------------------------------------------------------------------------

TEST(JinjaTemplate, RaiseExceptionIsTheTemplatesOwnText) {
  const auto text = render_template("\n{{ raise_exception('roles must ' ~ 'alternate') }}");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "roles must alternate");
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
}

TEST(JinjaTemplate, TheTimeIsTheClocks) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  ManualClock clock;
  clock.advance(std::chrono::hours(24 * 365));
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}{{ strftime_now('') }}", "{}", clock), "01 Jan 1971");
}

TEST(JinjaTemplate, JsonIsPythons) {
  EXPECT_EQ(value("x|tojson", R"({"x": {"a": [1, 2.0, null, true], "é<": "\"\\\n\u0001"}})"),
            R"({"a": [1, 2.0, null, true], "é<": "\"\\\n\u0001"})");
  EXPECT_EQ(value("x|tojson(indent=2)", R"({"x": {"a": [1, {}], "b": []}})"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(value("{7: 2, none: 3, true: (4,)}|tojson(separators=(',', ':'))"), R"({"7":2,"null":3,"true":[4]})");
  EXPECT_EQ(value("x|tojson(ensure_ascii=true)", R"({"x": "é😀"})"), R"("\u00e9\ud83d\ude00")");
}

// ---- What isn't there, and what may not be
// ---------------------------------------------------------------------------

TEST(JinjaTemplate, AMissingConstructIsNamedWithItsLineBeforeAnythingIsRendered) {
  struct Case {
    const char* source;
    const char* named;
  };
  for (const Case& c :
       {Case{"\n{% if false %}{{ x | xmlattr }}{% endif %}", "line 2: unknown filter `xmlattr`"},
        {"{{ x is escaped }}", "line 1: unknown test `escaped`"},
        {"a\nb\n{% include 'x' %}", "line 3: the tag `include` isn't supported"},
        {"{% block a %}{% endblock %}", "line 1: the tag `block` isn't supported"},
        {"{% frobnicate %}", "line 1: unexpected tag `frobnicate`"},
        {"{% for x in y recursive %}{% endfor %}", "line 1: `recursive` loops aren't supported"},
        {"{{ cycler(1) }}", "line 1: `cycler` isn't supported"},
        {"{{ f(*x) }}", "line 1: `*` in front of an argument isn't supported"},
        {"{% macro f() %}{{ varargs }}{% endmacro %}", "line 1: `varargs` in a macro isn't supported"}}) {
    const auto parsed = Template::parse(c.source, "chat_template of x");
    ASSERT_FALSE(parsed) << c.source;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported) << c.source;
    EXPECT_EQ(parsed.error().message, std::string("chat_template of x, ") + c.named);
  }
  EXPECT_THAT(value("'a'.zfill(3)"), HasSubstr("line 1: `zfill` of a string isn't supported"));
}

TEST(JinjaTemplate, WhatIsNotJinjaIsNamedWithItsLine) {
  for (const auto& [source, named] :
       {std::pair("{% if x %}", "line 1: expected `endif`, got the end of the template"),
        {"{{ }}", "line 1: expected an expression, got `}}`"},
        {"\n{% endif %}", "line 2: unexpected tag `endif`"},
        {"{{ 1 2 }}", "line 1: expected `}}`, got `2`"},
        {"{% set 5 = 1 %}", "line 1: expected a name to assign to, got `5`"},
        {"{% set true = 1 %}", "line 1: can't assign to `true`"},
        {"{% break %}", "line 1: `break` outside of a loop"},
        {"{% for x in y %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "line 1: `break` outside of a loop"},
        {"\xff", "not valid UTF-8"}}) {
    const auto parsed = Template::parse(source, "t");
    ASSERT_FALSE(parsed) << source;
    EXPECT_THAT(parsed.error().message, AllOf(StartsWith("t"), EndsWith(named)));
  }
}

TEST(JinjaTemplate, NothingOutsideOfTheDataIsReached) {
  for (const char* expression :
       {"''.__class__", "x['__class__']", "x.__init__", "x.items.__globals__", "[]['__len__']", "range.__call__",
        "none.__class__", "(1).__class__", "[x]|map(attribute='__class__')|list", "namespace().__dict__"}) {
    EXPECT_THAT(value(expression, R"({"x": {}})"),
                AllOf(StartsWith("error"), HasSubstr("outside of a template's data")))
        << expression;
  }
  EXPECT_EQ(value("x['__class__']", R"({"x": {"__class__": "mine"}})"), "mine");
}

TEST(JinjaTemplate, DataCantBeChanged) {
  for (const char* call : {"[].append(1)", "{}.update({})", "x.pop('a')", "[].sort()", "x['clear']()"}) {
    EXPECT_THAT(value(call, R"({"x": {}})"), HasSubstr("which a template may not")) << call;
  }
}

// ---- Bounds
// ----------------------------------------------------------------------------------------------------------

TEST(JinjaTemplate, WhatRunsOrGrowsWithoutEndIsStopped) {
  struct Case {
    const char* source;
    const char* named;
  };
  for (const Case& c :
       {Case{"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it runs too long"},
        {"{{ 'a' * 1000000000 }}", "a string of more than 16 MiB"},
        {"{{ 'ab' * 9223372036854775807 }}", "a string of more than 16 MiB"},
        {"{{ [1] * 1000000000 }}", "it runs too long"},
        {"{{ range(1000000000) }}", "at most 100000 items"},
        {"{{ range(-9223372036854775807, 9223372036854775807) }}", "at most 100000 items"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "as of a macro that calls itself"},
        {"{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}", "16 MiB"},
        {"{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
         "stopped after"},
        {"{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == [n.l] "
         "}}"
         "{% set n.m = [1] %}{% for i in range(64) %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}",
         "stopped after"},
        {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l] %}{% endfor %}",
         "more than 100 deep"},
        {"{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "16 MiB"},
        {"{{ ('a ' * 8000000).split() | length }}", "it runs too long"},
        {"{{ ('a' * 8000000) | list | length }}", "it runs too long"},
        {"{{ ('a' * 8000000) | replace('a', 'b' * 1000) | length }}", "it runs too long"},
        {"{{ ('a' * 100000) | replace('', 'b' * 1000) | length }}", "16 MiB"},
        {"{{ 'x' | indent(100000000) }}", "16 MiB"},
        {"{{ (x * 1000000) | replace('a', '-') | length }}", "16 MiB"},  // a run for each character
        {"{{ [[1, [2, 3]]] | tojson(indent=20000000) }}", "16 MiB"}}) {
    EXPECT_THAT(rendered(c.source, R"({"x": "ab"})"), AllOf(StartsWith("error: "), HasSubstr(c.named))) << c.source;
  }
}

TEST(JinjaTemplate, SourcesNestedTooDeeplyAreRefused) {
  const auto repeated = [](const char* part) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += part;
    return text;
  };
  for (const std::string& source :
       {"{{ " + repeated("(") + "1" + repeated(")") + " }}", "{{ " + repeated("[") + repeated("]") + " }}",
        "{{ " + repeated("-") + "1 }}", "{{ " + repeated("not ") + "1 }}", "{{ x" + repeated(".a") + " }}",
        "{{ 1" + repeated(" + 1") + " }}", "{{ 1" + repeated("|abs") + " }}", "{{ x" + repeated("()") + " }}",
        "{{ 1" + repeated(" if 1 else 1") + " }}", "{{ 1" + repeated(" if 1") + " }}", repeated("{% if 1 %}"),
        repeated("{% for x in y %}"), "{% set " + repeated("(") + "a" + repeated(")") + " = 1 %}",
        "{{ {" + repeated("1:{") + repeated("}") + "} }}", repeated("{% filter upper %}")}) {
    const auto parsed = Template::parse(source, "t");
    ASSERT_FALSE(parsed) << source.substr(0, 40);
    EXPECT_THAT(parsed.error().message, HasSubstr("nested more than")) << source.substr(0, 40);
  }
}

// A namespace may hold itself, a loop and macros: none of it outlives the rendering (the leak checker watches).
TEST(JinjaTemplate, CirclesComeApart) {
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% set n.self = n %}{% set n.list = [n] %}"
               "{% for x in [1] %}{% set n.loop = loop %}{% macro f() %}{% endmacro %}{% set n.f = f %}{% endfor %}ok"),
      "ok");
  EXPECT_THAT(rendered("{% set n = namespace() %}{% for x in [1] %}{% set n.l = loop %}{% endfor %}{{ n.l.index }}"),
              HasSubstr("`loop` outside of its loop"));
  EXPECT_THAT(rendered("{% set n = namespace() %}{% for x in [1] %}{% macro f() %}{% endmacro %}{% set n.f = f %}"
                       "{% endfor %}{{ n.f() }}"),
              HasSubstr("outside of the block that defines it"));
}

TEST(JinjaTemplate, FactsTellWhatATemplateReads) {
  const auto parsed = Template::parse(
      "{% for m in messages %}{% set c = m['content'] %}{% for p in c %}{% endfor %}"
      "{% if m.content is string %}{% endif %}{% endfor %}{% macro f() %}{{ tools }}{% endmacro %}",
      "t");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->reads("tools"));
  EXPECT_FALSE(parsed->reads("documents"));
  EXPECT_TRUE(parsed->facts().iterates_content);
  EXPECT_TRUE(parsed->facts().asks_if_content_is_text);
  EXPECT_FALSE(Template::parse("{% for m in messages %}{{ m.content }}{% endfor %}", "t")->facts().iterates_content);
}

}  // namespace
}  // namespace nmc::model::jinja
