// The source of a chat template as tokens, with white space around tags already trimmed as transformers configures
// Jinja: the line break after a block tag and the spaces before one go (trim_blocks, lstrip_blocks), `-` strips more,
// `+` less.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nmc::model::jinja {

struct Token {
  enum class Kind {
    kData,  // text outside of tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // `text` is what it stands for
    kInteger,
    kFloat,
    kOperator,  // `text` is its characters
    kEnd,       // of the template; the last token
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;

  bool is_operator(std::string_view symbol) const { return kind == Kind::kOperator && text == symbol; }
  bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// The token for messages: "`endfor`", "the end of the template".
std::string describe(const Token& token);

// "line 3: ..." in front of a message.
Failure error_at(int line, Error error);

// `source` is valid UTF-8. Errors name the line.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace nmc::model::jinja
