// For tests: a template, variables as JSON, and what comes out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "model/jinja_template.h"

namespace nmc::model::jinja {

inline Result<Text> render_template(std::string_view source, std::string_view variables = "{}",
                                    const Clock& clock = real_clock()) {
  const Result<Json> json = parse_json(variables, "variables");
  NMC_ASSERT(json, "{}", json.error().message);
  Budget budget;
  Variables values;
  for (const auto& [name, member] : json->items()) {
    NMC_ASSIGN_OR_RETURN(Value value, value_of_json(member, Origin::kRequest, budget));
    values.emplace_back(name, std::move(value));
  }
  NMC_ASSIGN_OR_RETURN(const Template parsed, Template::parse(source, "t"));
  return parsed.render(values, budget, clock);
}

// The text, or "error: ...".
inline std::string rendered(std::string_view source, std::string_view variables = "{}",
                            const Clock& clock = real_clock()) {
  const Result<Text> text = render_template(source, variables, clock);
  return text ? std::string(text->bytes()) : "error: " + text.error().message;
}

// The runs that come from the variables in brackets: "user [hi]".
inline std::string marked(std::string_view source, std::string_view variables = "{}") {
  const Result<Text> text = render_template(source, variables);
  if (!text) return "error: " + text.error().message;
  std::string result;
  for (const Text::Run& run : text->runs()) {
    result += run.origin == Origin::kRequest ? fmt::format("[{}]", run.bytes) : std::string(run.bytes);
  }
  return result;
}

}  // namespace nmc::model::jinja
