// The Jinja that chat templates are written in, as transformers configures it: trim_blocks, lstrip_blocks, loop
// controls, `generation` blocks, an immutable sandbox; undefined values are lenient. Control structures, macros,
// namespaces, and the filters, tests and methods that checkpoints use; what isn't there is an error by its name and
// line, of parse() wherever it can be told from the source. Strings are Text: the result tells the template's words
// from the request's.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "model/jinja_ast.h"
#include "model/jinja_budget.h"
#include "model/jinja_interpreter.h"
#include "model/jinja_parser.h"
#include "model/jinja_text.h"

namespace nmc::model::jinja {

inline constexpr std::size_t kTemplateBytesMax = 1 << 20;

// Immutable, thread-safe.
class Template {
 public:
  // `origin` is what messages call it ("chat_template of /x/tokenizer_config.json"). Errors: not UTF-8, too large, not
  // Jinja (kInvalidArgument), or Jinja that isn't supported here (kUnsupported).
  static Result<Template> parse(std::string_view source, std::string origin);

  // What is wrong with the values, or takes too long or too much, is kInvalidArgument; a member that isn't supported
  // kUnsupported. raise_exception() gives kInvalidArgument with its text alone.
  Result<Text> render(const Variables& variables, Budget& budget, const Clock& clock) const;

  const TemplateFacts& facts() const { return parsed_.facts; }
  bool reads(std::string_view variable) const;

 private:
  Template(ParsedTemplate parsed, std::string origin) : parsed_(std::move(parsed)), origin_(std::move(origin)) {}

  ParsedTemplate parsed_;
  std::string origin_;
};

}  // namespace nmc::model::jinja
