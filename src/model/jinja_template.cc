#include "model/jinja_template.h"

#include <algorithm>

namespace nmc::model::jinja {
namespace {

Failure with_origin(const std::string& origin, Error error) {
  error.message = fmt::format("{}, {}", origin, error.message);
  return Failure(std::move(error));
}

}  // namespace

Result<Template> Template::parse(std::string_view source, std::string origin) {
  if (source.size() > kTemplateBytesMax) {
    return invalid_argument("{}: expected at most {} bytes, got {}", origin, kTemplateBytesMax, source.size());
  }
  if (!is_valid_utf8(source)) return invalid_argument("{}: not valid UTF-8", origin);
  Result<ParsedTemplate> parsed = parse_template(source);
  if (!parsed) return with_origin(origin, std::move(parsed).error());
  return Template(std::move(*parsed), std::move(origin));
}

Result<Text> Template::render(const Variables& variables, Budget& budget, const Clock& clock) const {
  Interpreter interpreter(budget, clock);
  Result<Text> text = interpreter.render(parsed_.body, variables);
  if (!text && !interpreter.raised()) return with_origin(origin_, std::move(text).error());
  return text;
}

bool Template::reads(std::string_view variable) const {
  return std::ranges::binary_search(parsed_.facts.names, variable);
}

}  // namespace nmc::model::jinja
