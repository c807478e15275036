#include "model/jinja_expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "model/jinja_parser.h"

namespace nmc::model::jinja {
namespace {

constexpr int kNestingMax = 3 * kTreeDepthMax;  // a pair of parentheses passes three counted levels

class Nesting {
 public:
  explicit Nesting(int& count) : count_(count) { ++count_; }
  ~Nesting() { --count_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool is_too_deep() const { return count_ > kNestingMax; }

 private:
  int& count_;
};

int depth(const ExpressionPtr& expression) { return expression == nullptr ? 0 : expression->depth; }

int depth(const std::vector<ExpressionPtr>& list) {
  int deepest = 0;
  for (const ExpressionPtr& one : list) deepest = std::max(deepest, depth(one));
  return deepest;
}
int depth(const CallArguments& arguments) {
  int deepest = depth(arguments.positional);
  for (const auto& [name, value] : arguments.named) deepest = std::max(deepest, depth(value));
  return deepest;
}

int depth_below(const ConstantExpression&) { return 0; }
int depth_below(const NameExpression&) { return 0; }
int depth_below(const SequenceExpression& node) { return depth(node.items); }
int depth_below(const DictExpression& node) {
  int deepest = 0;
  for (const auto& [key, value] : node.entries) deepest = std::max({deepest, depth(key), depth(value)});
  return deepest;
}
int depth_below(const SignExpression& node) { return depth(node.operand); }
int depth_below(const NotExpression& node) { return depth(node.operand); }
int depth_below(const ArithmeticExpression& node) { return std::max(depth(node.left), depth(node.right)); }
int depth_below(const LogicExpression& node) { return std::max(depth(node.left), depth(node.right)); }
int depth_below(const CompareExpression& node) {
  int deepest = depth(node.first);
  for (const auto& [op, operand] : node.rest) deepest = std::max(deepest, depth(operand));
  return deepest;
}
int depth_below(const ConcatExpression& node) { return depth(node.parts); }
int depth_below(const ConditionalExpression& node) {
  return std::max({depth(node.test), depth(node.then), depth(node.otherwise)});
}
int depth_below(const AttributeExpression& node) { return depth(node.object); }
int depth_below(const ItemExpression& node) { return std::max(depth(node.object), depth(node.key)); }
int depth_below(const SliceExpression& node) {
  return std::max({depth(node.object), depth(node.start), depth(node.stop), depth(node.step)});
}
int depth_below(const CallExpression& node) { return std::max(depth(node.callee), depth(node.arguments)); }
int depth_below(const FilterExpression& node) { return std::max(depth(node.input), depth(node.arguments)); }
int depth_below(const TestExpression& node) { return std::max(depth(node.input), depth(node.arguments)); }

// Jinja has these too; a template that needs one is told so rather than that the name is undefined.
constexpr std::array<std::string_view, 5> kMissingGlobals = {"cycler", "joiner", "lipsum", "self", "super"};

bool starts_argument(const Token& token) {
  using Kind = Token::Kind;
  if (token.kind == Kind::kName) return !token.is_name("else") && !token.is_name("or") && !token.is_name("and");
  return token.kind == Kind::kString || token.kind == Kind::kInteger || token.kind == Kind::kFloat ||
         token.is_operator("[") || token.is_operator("{");
}

std::optional<Comparison> comparison_of(const Token& token) {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSymbols = {{{"==", Comparison::kEqual},
                                                                                {"!=", Comparison::kNotEqual},
                                                                                {"<", Comparison::kLess},
                                                                                {"<=", Comparison::kLessEqual},
                                                                                {">", Comparison::kGreater},
                                                                                {">=", Comparison::kGreaterEqual}}};
  for (const auto& [symbol, comparison] : kSymbols) {
    if (token.is_operator(symbol)) return comparison;
  }
  return std::nullopt;
}

}  // namespace

template <typename Node>
Result<ExpressionPtr> ExpressionParser::make(Node node, int line) {
  const int depth = depth_below(node) + 1;
  if (depth > kTreeDepthMax) {
    return error_at(
        line, Error{ErrorCode::kInvalidArgument, fmt::format("expressions nested more than {} deep", kTreeDepthMax)});
  }
  return ExpressionPtr(std::make_unique<const Expression>(Expression{std::move(node), line, depth}));
}

bool ExpressionParser::is_content(const Expression& expression) const {
  if (const auto* attribute = std::get_if<AttributeExpression>(&expression.node)) return attribute->name == "content";
  if (const auto* name = std::get_if<NameExpression>(&expression.node)) return content_names_.contains(name->name);
  if (const auto* filter = std::get_if<FilterExpression>(&expression.node)) {
    return filter->input != nullptr && is_content(*filter->input);
  }
  if (const auto* logic = std::get_if<LogicExpression>(&expression.node)) {
    return is_content(*logic->left) || is_content(*logic->right);
  }
  if (const auto* conditional = std::get_if<ConditionalExpression>(&expression.node)) {
    return is_content(*conditional->then) || (conditional->otherwise != nullptr && is_content(*conditional->otherwise));
  }
  if (const auto* item = std::get_if<ItemExpression>(&expression.node)) {
    const auto* key = std::get_if<ConstantExpression>(&item->key->node);
    return key != nullptr && key->value.text() != nullptr && key->value.text()->bytes() == "content";
  }
  return false;
}

// ---- From the loosest to the tightest
// ----------------------------------------------------------------------------------

Result<ExpressionPtr> ExpressionParser::tuple(bool with_conditional) {
  const int line = tokens_.line();
  const auto one = [&] { return with_conditional ? expression() : disjunction(); };
  NMC_ASSIGN_OR_RETURN(ExpressionPtr first, one());
  if (!tokens_.peek().is_operator(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    const Token& next = tokens_.peek();
    if (next.kind == Token::Kind::kVariableEnd || next.kind == Token::Kind::kBlockEnd || next.is_operator(")")) break;
    NMC_ASSIGN_OR_RETURN(items.emplace_back(), one());
  }
  return make(SequenceExpression{std::move(items), true}, line);
}

Result<ExpressionPtr> ExpressionParser::expression() {
  const Nesting nesting(nesting_);
  const int line = tokens_.line();
  if (nesting.is_too_deep()) return tokens_.fail(fmt::format("expressions nested more than {} deep", kTreeDepthMax));
  NMC_ASSIGN_OR_RETURN(ExpressionPtr then, disjunction());
  while (tokens_.skip_name("if")) {
    NMC_ASSIGN_OR_RETURN(ExpressionPtr test, disjunction());
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      NMC_ASSIGN_OR_RETURN(otherwise, expression());
    }
    NMC_ASSIGN_OR_RETURN(then,
                         make(ConditionalExpression{std::move(test), std::move(then), std::move(otherwise)}, line));
  }
  return then;
}

Result<ExpressionPtr> ExpressionParser::logic(bool is_and, std::string_view word, Level operand) {
  NMC_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  for (int line = tokens_.line(); tokens_.skip_name(word); line = tokens_.line()) {
    NMC_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
    NMC_ASSIGN_OR_RETURN(left, make(LogicExpression{is_and, std::move(left), std::move(right)}, line));
  }
  return left;
}
Result<ExpressionPtr> ExpressionParser::disjunction() { return logic(false, "or", &ExpressionParser::conjunction); }
Result<ExpressionPtr> ExpressionParser::conjunction() { return logic(true, "and", &ExpressionParser::negation); }

Result<ExpressionPtr> ExpressionParser::negation() {
  const Nesting nesting(nesting_);
  if (nesting.is_too_deep()) return tokens_.fail(fmt::format("expressions nested more than {} deep", kTreeDepthMax));
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return comparison();
  NMC_ASSIGN_OR_RETURN(ExpressionPtr operand, negation());
  return make(NotExpression{std::move(operand)}, line);
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  const int line = tokens_.line();
  NMC_ASSIGN_OR_RETURN(ExpressionPtr first, sum());
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  while (true) {
    std::optional<Comparison> op = comparison_of(tokens_.peek());
    if (tokens_.peek().is_name("in")) op = Comparison::kIn;
    if (tokens_.peek().is_name("not") && tokens_.peek(1).is_name("in")) {
      op = Comparison::kNotIn;
      tokens_.take();
    }
    if (!op) break;
    tokens_.take();
    NMC_ASSIGN_OR_RETURN(ExpressionPtr operand, sum());
    rest.emplace_back(*op, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(CompareExpression{std::move(first), std::move(rest)}, line);
}

Result<ExpressionPtr> ExpressionParser::sum() {
  NMC_ASSIGN_OR_RETURN(ExpressionPtr left, concatenation());
  while (tokens_.peek().is_operator("+") || tokens_.peek().is_operator("-")) {
    const int line = tokens_.line();
    const Arithmetic op = tokens_.take().text == "+" ? Arithmetic::kAdd : Arithmetic::kSubtract;
    NMC_ASSIGN_OR_RETURN(ExpressionPtr right, concatenation());
    NMC_ASSIGN_OR_RETURN(left, make(ArithmeticExpression{op, std::move(left), std::move(right)}, line));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::concatenation() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> parts;
  do {
    NMC_ASSIGN_OR_RETURN(parts.emplace_back(), product());
  } while (tokens_.skip_operator("~"));
  if (parts.size() == 1) return std::move(parts.front());
  return make(ConcatExpression{std::move(parts)}, line);
}

Result<ExpressionPtr> ExpressionParser::product() {
  constexpr std::array<std::pair<std::string_view, Arithmetic>, 4> kSymbols = {{{"*", Arithmetic::kMultiply},
                                                                                {"/", Arithmetic::kDivide},
                                                                                {"//", Arithmetic::kFloorDivide},
                                                                                {"%", Arithmetic::kModulo}}};
  NMC_ASSIGN_OR_RETURN(ExpressionPtr left, power());
  while (true) {
    const auto* symbol =
        std::ranges::find_if(kSymbols, [&](const auto& one) { return tokens_.peek().is_operator(one.first); });
    if (symbol == kSymbols.end()) return left;
    const int line = tokens_.take().line;
    NMC_ASSIGN_OR_RETURN(ExpressionPtr right, power());
    NMC_ASSIGN_OR_RETURN(left, make(ArithmeticExpression{symbol->second, std::move(left), std::move(right)}, line));
  }
}

// From the left, unlike Python's.
Result<ExpressionPtr> ExpressionParser::power() {
  NMC_ASSIGN_OR_RETURN(ExpressionPtr left, unary(true));
  while (tokens_.peek().is_operator("**")) {
    const int line = tokens_.take().line;
    NMC_ASSIGN_OR_RETURN(ExpressionPtr right, unary(true));
    NMC_ASSIGN_OR_RETURN(left, make(ArithmeticExpression{Arithmetic::kPower, std::move(left), std::move(right)}, line));
  }
  return left;
}

// A filter or test after a sign applies to the signed value.
Result<ExpressionPtr> ExpressionParser::unary(bool filters_too) {
  const Nesting nesting(nesting_);
  if (nesting.is_too_deep()) return tokens_.fail(fmt::format("expressions nested more than {} deep", kTreeDepthMax));
  const int line = tokens_.line();
  const bool negative = tokens_.peek().is_operator("-");
  ExpressionPtr node;
  if (negative || tokens_.peek().is_operator("+")) {
    tokens_.take();
    NMC_ASSIGN_OR_RETURN(ExpressionPtr operand, unary(false));
    NMC_ASSIGN_OR_RETURN(node, make(SignExpression{negative, std::move(operand)}, line));
  } else {
    NMC_ASSIGN_OR_RETURN(node, primary());
  }
  NMC_ASSIGN_OR_RETURN(node, with_members(std::move(node)));
  return filters_too ? with_filters(std::move(node)) : Result<ExpressionPtr>(std::move(node));
}

// ---- Values
// ----------------------------------------------------------------------------------------------------------

Result<ExpressionPtr> ExpressionParser::primary() {
  const Token& token = tokens_.peek();
  const int line = token.line;
  switch (token.kind) {
    case Token::Kind::kName: return name();
    case Token::Kind::kInteger: return make(ConstantExpression{tokens_.take().integer}, line);
    case Token::Kind::kFloat: return make(ConstantExpression{tokens_.take().real}, line);
    case Token::Kind::kString: {
      std::string text;  // strings side by side are one
      while (tokens_.peek().kind == Token::Kind::kString) text += tokens_.take().text;
      return make(ConstantExpression{Value::of(text)}, line);
    }
    default: break;
  }
  if (token.is_operator("(")) return in_parentheses();
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  return tokens_.unexpected("an expression");
}

Result<ExpressionPtr> ExpressionParser::name() {
  const Token token = tokens_.take();
  const auto constant = [&](Value value) { return make(ConstantExpression{std::move(value)}, token.line); };
  if (token.text == "true" || token.text == "True") return constant(true);
  if (token.text == "false" || token.text == "False") return constant(false);
  if (token.text == "none" || token.text == "None") return constant(None());
  if (std::ranges::find(kMissingGlobals, token.text) != kMissingGlobals.end()) {
    return error_at(token.line, Error{ErrorCode::kUnsupported, fmt::format("`{}` isn't supported", token.text)});
  }
  names_.insert(token.text);
  return make(NameExpression{token.text}, token.line);
}

Result<ExpressionPtr> ExpressionParser::in_parentheses() {
  const int line = tokens_.take().line;
  if (tokens_.skip_operator(")")) return make(SequenceExpression{{}, true}, line);
  NMC_ASSIGN_OR_RETURN(ExpressionPtr inside, tuple());
  NMC_RETURN_IF_ERROR(tokens_.expect_operator(")"));
  return inside;
}

Result<ExpressionPtr> ExpressionParser::list() {
  const int line = tokens_.take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.peek().is_operator("]")) {
    if (!items.empty()) NMC_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.peek().is_operator("]")) break;
    NMC_ASSIGN_OR_RETURN(items.emplace_back(), expression());
  }
  tokens_.take();
  return make(SequenceExpression{std::move(items), false}, line);
}

Result<ExpressionPtr> ExpressionParser::dict() {
  const int line = tokens_.take().line;
  DictExpression dict;
  while (!tokens_.peek().is_operator("}")) {
    if (!dict.entries.empty()) NMC_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.peek().is_operator("}")) break;
    NMC_ASSIGN_OR_RETURN(ExpressionPtr key, expression());
    NMC_RETURN_IF_ERROR(tokens_.expect_operator(":"));
    NMC_ASSIGN_OR_RETURN(ExpressionPtr value, expression());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.take();
  return make(std::move(dict), line);
}

// ---- What may follow a value
// -----------------------------------------------------------------------------------------

Result<ExpressionPtr> ExpressionParser::with_members(ExpressionPtr object) {
  while (true) {
    const Token& token = tokens_.peek();
    if (token.is_operator(".")) {
      NMC_ASSIGN_OR_RETURN(object, member(std::move(object)));
    } else if (token.is_operator("[")) {
      NMC_ASSIGN_OR_RETURN(object, item(std::move(object)));
    } else if (token.is_operator("(")) {
      NMC_ASSIGN_OR_RETURN(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::with_filters(ExpressionPtr object) {
  while (true) {
    const Token& token = tokens_.peek();
    if (token.is_operator("|")) {
      tokens_.take();
      NMC_ASSIGN_OR_RETURN(object, filter(std::move(object)));
    } else if (token.is_name("is")) {
      NMC_ASSIGN_OR_RETURN(object, test(std::move(object)));
    } else if (token.is_operator("(")) {
      NMC_ASSIGN_OR_RETURN(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::member(ExpressionPtr object) {
  const int line = tokens_.take().line;
  const Token& token = tokens_.peek();
  if (token.kind == Token::Kind::kInteger) {
    NMC_ASSIGN_OR_RETURN(ExpressionPtr index, make(ConstantExpression{tokens_.take().integer}, line));
    return make(ItemExpression{std::move(object), std::move(index)}, line);
  }
  NMC_ASSIGN_OR_RETURN(std::string name, tokens_.any_name("a name or a number after `.`"));
  return make(AttributeExpression{std::move(object), std::move(name)}, line);
}

Result<ExpressionPtr> ExpressionParser::item(ExpressionPtr object) {
  const int line = tokens_.take().line;
  ExpressionPtr start, stop, step;
  const auto ends_part = [&] { return tokens_.peek().is_operator(":") || tokens_.peek().is_operator("]"); };
  if (!ends_part()) {
    NMC_ASSIGN_OR_RETURN(start, expression());
  } else if (tokens_.peek().is_operator("]")) {
    return tokens_.unexpected("an expression");
  }
  if (tokens_.skip_operator("]")) return make(ItemExpression{std::move(object), std::move(start)}, line);
  if (tokens_.peek().is_operator(","))
    return tokens_.fail("several keys in one `[]` aren't supported", ErrorCode::kUnsupported);
  NMC_RETURN_IF_ERROR(tokens_.expect_operator(":"));
  if (!ends_part()) {
    NMC_ASSIGN_OR_RETURN(stop, expression());
  }
  if (tokens_.skip_operator(":") && !ends_part()) {
    NMC_ASSIGN_OR_RETURN(step, expression());
  }
  NMC_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  return make(SliceExpression{std::move(object), std::move(start), std::move(stop), std::move(step)}, line);
}

Result<std::string> ExpressionParser::dotted_name(std::string_view what) {
  NMC_ASSIGN_OR_RETURN(std::string name, tokens_.any_name(what));
  while (tokens_.skip_operator(".")) {
    NMC_ASSIGN_OR_RETURN(const std::string more, tokens_.any_name(what));
    name += "." + more;
  }
  return name;
}

Result<ExpressionPtr> ExpressionParser::filter(ExpressionPtr input) {
  const int line = tokens_.line();
  NMC_ASSIGN_OR_RETURN(std::string name, dotted_name("the name of a filter"));
  const Filter apply = find_filter(name);
  if (apply == nullptr) return error_at(line, Error{ErrorCode::kUnsupported, fmt::format("unknown filter `{}`", name)});
  CallArguments given;
  if (tokens_.peek().is_operator("(")) {
    NMC_ASSIGN_OR_RETURN(given, arguments());
  }
  return make(FilterExpression{std::move(input), std::move(name), apply, std::move(given)}, line);
}

Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr input) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  NMC_ASSIGN_OR_RETURN(std::string name, dotted_name("the name of a test"));
  const Test holds = find_test(name);
  if (holds == nullptr) return error_at(line, Error{ErrorCode::kUnsupported, fmt::format("unknown test `{}`", name)});
  CallArguments given;
  if (tokens_.peek().is_operator("(")) {
    NMC_ASSIGN_OR_RETURN(given, arguments());
  } else if (starts_argument(tokens_.peek())) {
    if (tokens_.peek().is_name("is")) return tokens_.fail("several tests in a row: put parentheses around the first");
    NMC_ASSIGN_OR_RETURN(ExpressionPtr argument, primary());
    NMC_ASSIGN_OR_RETURN(given.positional.emplace_back(), with_members(std::move(argument)));
  }
  asks_if_content_is_text_ = asks_if_content_is_text_ || (name == "string" && is_content(*input));
  NMC_ASSIGN_OR_RETURN(ExpressionPtr node,
                       make(TestExpression{std::move(input), std::move(name), holds, std::move(given)}, line));
  return negated ? make(NotExpression{std::move(node)}, line) : Result<ExpressionPtr>(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::call(ExpressionPtr callee) {
  const int line = tokens_.line();
  NMC_ASSIGN_OR_RETURN(CallArguments given, arguments());
  return make(CallExpression{std::move(callee), std::move(given)}, line);
}

Result<CallArguments> ExpressionParser::arguments() {
  tokens_.take();
  CallArguments given;
  for (bool first = true; !tokens_.peek().is_operator(")"); first = false) {
    if (!first) NMC_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.peek().is_operator(")")) break;
    if (tokens_.peek().is_operator("*") || tokens_.peek().is_operator("**")) {
      return tokens_.fail(fmt::format("`{}` in front of an argument isn't supported", tokens_.peek().text),
                          ErrorCode::kUnsupported);
    }
    if (tokens_.peek().kind == Token::Kind::kName && tokens_.peek(1).is_operator("=")) {
      std::string name = tokens_.take().text;
      tokens_.take();
      NMC_ASSIGN_OR_RETURN(ExpressionPtr value, expression());
      given.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!given.named.empty()) return tokens_.fail("an argument without a name behind one with a name");
      NMC_ASSIGN_OR_RETURN(given.positional.emplace_back(), expression());
    }
  }
  tokens_.take();
  return given;
}

Result<ExpressionPtr> ExpressionParser::block_filters(bool first_is_bare) {
  ExpressionPtr node;
  while (first_is_bare || tokens_.skip_operator("|")) {
    first_is_bare = false;
    NMC_ASSIGN_OR_RETURN(node, filter(std::move(node)));
  }
  return node;
}

}  // namespace nmc::model::jinja
