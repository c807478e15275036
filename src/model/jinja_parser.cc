#include "model/jinja_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <utility>

#include "model/jinja_expression_parser.h"
#include "model/jinja_token_stream.h"

namespace nmc::model::jinja {
namespace {

using Kind = Token::Kind;

constexpr std::array<std::string_view, 12> kMissingTags = {"autoescape", "block",     "debug",  "do",
                                                           "extends",    "from",      "import", "include",
                                                           "language",   "pluralize", "print",  "trans"};

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<ParsedTemplate> run() {
    NMC_ASSIGN_OR_RETURN(Body body, statements({}));
    ParsedTemplate parsed{.body = std::move(body)};
    parsed.facts.names.assign(expressions_.names().begin(), expressions_.names().end());
    parsed.facts.iterates_content = iterates_content_;
    parsed.facts.asks_if_content_is_text = expressions_.asks_if_content_is_text();
    return parsed;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Up to a tag that is one of `ends`, which stays the next token (behind its `{%`); without ends to the end.
  Result<Body> statements(Ends ends) {
    Body body;
    while (tokens_.peek().kind != Kind::kEnd) {
      const Token token = tokens_.take();
      if (token.kind == Kind::kData) {
        Expression text{ConstantExpression{Value::of(token.text)}, token.line};
        body.push_back({OutputStatement{std::make_unique<const Expression>(std::move(text))}, token.line});
      } else if (token.kind == Kind::kVariableBegin) {
        NMC_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.tuple());
        NMC_RETURN_IF_ERROR(tokens_.expect(Kind::kVariableEnd, "`}}`"));
        body.push_back({OutputStatement{std::move(value)}, token.line});
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) { return tokens_.peek().is_name(end); })) return body;
        NMC_RETURN_IF_ERROR(statement(body));
        NMC_RETURN_IF_ERROR(tokens_.expect(Kind::kBlockEnd, "`%}`"));
      }
    }
    if (ends.size() == 0) return body;
    return tokens_.unexpected(fmt::format("`{}`", *ends.begin()));
  }

  // The body of a tag whose own end comes next.
  Result<Body> body_until(Ends ends) {
    if (++depth_ > kTreeDepthMax) return tokens_.fail(fmt::format("blocks nested more than {} deep", kTreeDepthMax));
    tokens_.skip_operator(":");
    NMC_RETURN_IF_ERROR(tokens_.expect(Kind::kBlockEnd, "`%}`"));
    NMC_ASSIGN_OR_RETURN(Body body, statements(ends));
    --depth_;
    return body;
  }

  // A body with one possible end, which is taken.
  Result<Body> whole_body(std::string_view end) {
    NMC_ASSIGN_OR_RETURN(Body body, body_until({end}));
    NMC_RETURN_IF_ERROR(tokens_.expect_name(end));
    return body;
  }

  Result<void> statement(Body& body) {
    const int line = tokens_.line();
    NMC_ASSIGN_OR_RETURN(const std::string tag, tokens_.any_name("the name of a tag"));
    const auto add = [&]<typename Node>(Result<Node> node) -> Result<void> {
      if (!node) return Failure(std::move(node).error());
      body.push_back({std::move(*node), line});
      return {};
    };
    if (tag == "if") return add(if_statement());
    if (tag == "for") return add(for_statement());
    if (tag == "set") return set_statement(body, line);
    if (tag == "macro") return add(macro_statement(line));
    if (tag == "call") return add(call_statement(line));
    if (tag == "filter") return add(filter_statement());
    if (tag == "with") return add(with_statement());
    if (tag == "generation") return add(generation_statement());
    if (tag == "break") return add(loop_control<BreakStatement>(tag, line));
    if (tag == "continue") return add(loop_control<ContinueStatement>(tag, line));
    return unknown_tag(tag, line);
  }

  static Failure unknown_tag(const std::string& tag, int line) {
    const bool in_jinja = std::ranges::find(kMissingTags, tag) != kMissingTags.end();
    return error_at(line, Error{ErrorCode::kUnsupported, in_jinja ? fmt::format("the tag `{}` isn't supported", tag)
                                                                  : fmt::format("unexpected tag `{}`", tag)});
  }

  // ---- Control
  // -------------------------------------------------------------------------------------------------------

  Result<IfStatement> if_statement() {
    IfStatement node;
    while (true) {
      NMC_ASSIGN_OR_RETURN(ExpressionPtr test, expressions_.tuple(false));
      NMC_ASSIGN_OR_RETURN(Body body, body_until({"endif", "elif", "else"}));
      node.branches.push_back({std::move(test), std::move(body)});
      if (!tokens_.skip_name("elif")) break;
    }
    if (tokens_.skip_name("else")) {
      NMC_ASSIGN_OR_RETURN(Body body, body_until({"endif"}));
      node.branches.push_back({nullptr, std::move(body)});
    }
    NMC_RETURN_IF_ERROR(tokens_.expect_name("endif"));
    return node;
  }

  Result<ForStatement> for_statement() {
    ForStatement node;
    NMC_ASSIGN_OR_RETURN(node.target, target(false));
    NMC_RETURN_IF_ERROR(tokens_.expect_name("in"));
    NMC_ASSIGN_OR_RETURN(node.items, expressions_.tuple(false));
    iterates_content_ = iterates_content_ || expressions_.is_content(*node.items);
    if (tokens_.skip_name("if")) {
      NMC_ASSIGN_OR_RETURN(node.test, expressions_.expression());
    }
    if (tokens_.peek().is_name("recursive")) {
      return tokens_.fail("`recursive` loops aren't supported", ErrorCode::kUnsupported);
    }
    ++loops_;
    NMC_ASSIGN_OR_RETURN(node.body, body_until({"endfor", "else"}));
    --loops_;
    if (tokens_.skip_name("else")) {
      NMC_ASSIGN_OR_RETURN(node.otherwise, body_until({"endfor"}));
    }
    NMC_RETURN_IF_ERROR(tokens_.expect_name("endfor"));
    return node;
  }

  template <typename Node>
  Result<Node> loop_control(const std::string& tag, int line) {
    if (loops_ > 0) return Node();
    return error_at(line, Error{ErrorCode::kInvalidArgument, fmt::format("`{}` outside of a loop", tag)});
  }

  // ---- Assignment
  // ----------------------------------------------------------------------------------------------------

  Result<Target> one_target(bool with_members) {
    if (tokens_.skip_operator("(")) {
      NMC_ASSIGN_OR_RETURN(Target inside, target(with_members));
      NMC_RETURN_IF_ERROR(tokens_.expect_operator(")"));
      return inside;
    }
    const int line = tokens_.line();
    Target one;
    NMC_ASSIGN_OR_RETURN(one.name, tokens_.any_name("a name to assign to"));
    constexpr std::array<std::string_view, 7> kFixed = {"true", "false", "none", "True", "False", "None", "loop"};
    if (std::ranges::find(kFixed, one.name) != kFixed.end()) {
      return error_at(line, Error{ErrorCode::kInvalidArgument, fmt::format("can't assign to `{}`", one.name)});
    }
    if (with_members && tokens_.skip_operator(".")) {
      NMC_ASSIGN_OR_RETURN(one.member, tokens_.any_name("a name after `.`"));
    }
    return one;
  }

  Result<Target> target(bool with_members) {
    if (++depth_ > kTreeDepthMax) return tokens_.fail(fmt::format("names nested more than {} deep", kTreeDepthMax));
    NMC_ASSIGN_OR_RETURN(Target first, one_target(with_members));
    --depth_;
    if (!tokens_.peek().is_operator(",")) return first;
    Target all{.is_tuple = true};
    all.parts.push_back(std::move(first));
    while (tokens_.skip_operator(",")) {
      if (tokens_.peek().kind != Kind::kName && !tokens_.peek().is_operator("(")) break;
      if (tokens_.peek().is_name("in")) break;
      NMC_ASSIGN_OR_RETURN(all.parts.emplace_back(), one_target(with_members));
    }
    return all;
  }

  Result<void> set_statement(Body& body, int line) {
    NMC_ASSIGN_OR_RETURN(Target to, target(true));
    if (tokens_.skip_operator("=")) {
      NMC_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.tuple());
      if (expressions_.is_content(*value)) expressions_.note_content(to.name);
      body.push_back({SetStatement{std::move(to), std::move(value)}, line});
      return {};
    }
    NMC_ASSIGN_OR_RETURN(ExpressionPtr filter, expressions_.block_filters(false));
    NMC_ASSIGN_OR_RETURN(Body inner, whole_body("endset"));
    body.push_back({SetBlockStatement{std::move(to), std::move(filter), std::move(inner)}, line});
    return {};
  }

  Result<WithStatement> with_statement() {
    WithStatement node;
    while (tokens_.peek().kind == Kind::kName) {
      NMC_ASSIGN_OR_RETURN(Target to, one_target(false));
      NMC_RETURN_IF_ERROR(tokens_.expect_operator("="));
      NMC_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.expression());
      node.values.emplace_back(std::move(to), std::move(value));
      if (!tokens_.skip_operator(",")) break;
    }
    NMC_ASSIGN_OR_RETURN(node.body, whole_body("endwith"));
    return node;
  }

  // Marks what the model said, for training; a scope of its own here.
  Result<WithStatement> generation_statement() {
    WithStatement node;
    const int loops = std::exchange(loops_, 0);
    NMC_ASSIGN_OR_RETURN(node.body, whole_body("endgeneration"));
    loops_ = loops;
    return node;
  }

  Result<FilterStatement> filter_statement() {
    FilterStatement node;
    NMC_ASSIGN_OR_RETURN(node.filter, expressions_.block_filters(true));
    NMC_ASSIGN_OR_RETURN(node.body, whole_body("endfilter"));
    return node;
  }

  // ---- Macros
  // --------------------------------------------------------------------------------------------------------

  Result<std::vector<Parameter>> parameters() {
    std::vector<Parameter> list;
    NMC_RETURN_IF_ERROR(tokens_.expect_operator("("));
    while (!tokens_.peek().is_operator(")")) {
      if (!list.empty()) NMC_RETURN_IF_ERROR(tokens_.expect_operator(","));
      Parameter parameter;
      NMC_ASSIGN_OR_RETURN(parameter.name, tokens_.any_name("the name of a parameter"));
      if (tokens_.skip_operator("=")) {
        NMC_ASSIGN_OR_RETURN(parameter.absent, expressions_.expression());
      } else if (!list.empty() && list.back().absent != nullptr) {
        return tokens_.fail(fmt::format("the parameter `{}` needs a default as the one before has", parameter.name));
      }
      list.push_back(std::move(parameter));
    }
    tokens_.take();
    return list;
  }

  // The body of a macro, and what it asks for beside its parameters.
  Result<std::unique_ptr<const Macro>> macro(std::string name, std::vector<Parameter> list, std::string_view end,
                                             int line) {
    const std::set<std::string> outside = expressions_.exchange_names({});
    const int loops = std::exchange(loops_, 0);
    NMC_ASSIGN_OR_RETURN(Body body, whole_body(end));
    loops_ = loops;
    const std::set<std::string> inside = expressions_.exchange_names(outside);
    expressions_.add_names(inside);
    const auto asks_for = [&](std::string_view special) {
      return inside.contains(std::string(special)) && std::ranges::find(list, special, &Parameter::name) == list.end();
    };
    for (const std::string_view special : {"varargs", "kwargs"}) {
      if (!asks_for(special)) continue;
      return error_at(line, Error{ErrorCode::kUnsupported, fmt::format("`{}` in a macro isn't supported", special)});
    }
    const bool uses_caller = asks_for("caller");
    return std::make_unique<const Macro>(Macro{std::move(name), std::move(list), std::move(body), uses_caller, line});
  }

  Result<MacroStatement> macro_statement(int line) {
    NMC_ASSIGN_OR_RETURN(std::string name, tokens_.any_name("the name of a macro"));
    NMC_ASSIGN_OR_RETURN(std::vector<Parameter> list, parameters());
    MacroStatement node;
    NMC_ASSIGN_OR_RETURN(node.macro, macro(std::move(name), std::move(list), "endmacro", line));
    return node;
  }

  Result<CallStatement> call_statement(int line) {
    std::vector<Parameter> list;
    if (tokens_.peek().is_operator("(")) {
      NMC_ASSIGN_OR_RETURN(list, parameters());
    }
    CallStatement node;
    NMC_ASSIGN_OR_RETURN(node.call, expressions_.expression());
    if (!std::holds_alternative<CallExpression>(node.call->node)) {
      return error_at(line, Error{ErrorCode::kInvalidArgument, "`call`: expected the call of a macro"});
    }
    NMC_ASSIGN_OR_RETURN(node.caller, macro("caller", std::move(list), "endcall", line));
    return node;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // that a `break` here could leave
  bool iterates_content_ = false;
};

}  // namespace

Result<ParsedTemplate> parse_template(std::string_view source) {
  NMC_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace nmc::model::jinja
