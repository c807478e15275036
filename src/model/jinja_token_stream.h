// Tokens with a position, for the parsers of expressions and statements.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/jinja_lexer.h"

namespace nmc::model::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // The last token, kEnd, stays.
  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  int line() const { return peek().line; }

  bool skip_operator(std::string_view symbol) { return skip_if(peek().is_operator(symbol)); }
  bool skip_name(std::string_view name) { return skip_if(peek().is_name(name)); }

  Failure unexpected(std::string_view expected) const {
    return fail(fmt::format("expected {}, got {}", expected, describe(peek())));
  }
  Failure fail(std::string message, ErrorCode code = ErrorCode::kInvalidArgument) const {
    return error_at(line(), Error{code, std::move(message)});
  }

  Result<void> expect_operator(std::string_view symbol) {
    return skip_operator(symbol) ? Result<void>() : unexpected(fmt::format("`{}`", symbol));
  }
  Result<void> expect_name(std::string_view name) {
    return skip_name(name) ? Result<void>() : unexpected(fmt::format("`{}`", name));
  }
  Result<void> expect(Token::Kind kind, std::string_view what) {
    return skip_if(peek().kind == kind) ? Result<void>() : unexpected(what);
  }
  Result<std::string> any_name(std::string_view what) {
    if (peek().kind != Token::Kind::kName) return unexpected(what);
    return take().text;
  }

 private:
  bool skip_if(bool condition) {
    if (condition) take();
    return condition;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace nmc::model::jinja
