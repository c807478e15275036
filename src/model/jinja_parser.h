// From tokens to the trees of jinja_ast.h. What the subset doesn't have is an error here, with its name and line.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/jinja_ast.h"

namespace nmc::model::jinja {

// Of an expression's tree, and of statements within each other.
inline constexpr int kTreeDepthMax = 120;

struct ParsedTemplate {
  Body body;
  TemplateFacts facts;
};

// `source` is valid UTF-8.
Result<ParsedTemplate> parse_template(std::string_view source);

}  // namespace nmc::model::jinja
