// Expressions of a chat template, by Jinja's precedence.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "model/jinja_ast.h"
#include "model/jinja_token_stream.h"

namespace nmc::model::jinja {

class ExpressionParser {
 public:
  // `tokens` outlives this.
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExpressionPtr> expression();  // with `a if b else c`
  // One expression, or several with commas between them as a tuple.
  Result<ExpressionPtr> tuple(bool with_conditional = true);
  // `| name(...) | ...` over what a block makes; null when there is none. `first_is_bare`: the first `|` is left out.
  Result<ExpressionPtr> block_filters(bool first_is_bare);

  // Names that were read so far.
  const std::set<std::string>& names() const { return names_; }
  std::set<std::string> exchange_names(std::set<std::string> names) { return std::exchange(names_, std::move(names)); }
  void add_names(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }

  // Whether it is the `content` of something, or a name that was noted as standing for one.
  bool is_content(const Expression& expression) const;
  void note_content(const std::string& name) { content_names_.insert(name); }
  bool asks_if_content_is_text() const { return asks_if_content_is_text_; }

 private:
  using Level = Result<ExpressionPtr> (ExpressionParser::*)();

  Result<ExpressionPtr> disjunction();
  Result<ExpressionPtr> conjunction();
  Result<ExpressionPtr> negation();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concatenation();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary(bool with_filters);
  Result<ExpressionPtr> power_operand() { return unary(true); }
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> name();
  Result<ExpressionPtr> list();
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> in_parentheses();
  Result<ExpressionPtr> with_members(ExpressionPtr object);
  Result<ExpressionPtr> with_filters(ExpressionPtr object);
  Result<ExpressionPtr> member(ExpressionPtr object);
  Result<ExpressionPtr> item(ExpressionPtr object);
  Result<ExpressionPtr> filter(ExpressionPtr input);
  Result<ExpressionPtr> test(ExpressionPtr input);
  Result<ExpressionPtr> call(ExpressionPtr callee);
  Result<CallArguments> arguments();
  Result<std::string> dotted_name(std::string_view what);
  Result<ExpressionPtr> logic(bool is_and, std::string_view word, Level operand);

  // The node with its line and depth; fails when the tree becomes too deep.
  template <typename Node>
  Result<ExpressionPtr> make(Node node, int line);

  TokenStream& tokens_;
  std::set<std::string> names_;
  std::set<std::string> content_names_;
  bool asks_if_content_is_text_ = false;
  int nesting_ = 0;  // of calls within each other, so that parsing itself stays shallow
};

}  // namespace nmc::model::jinja
