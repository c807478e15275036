// nmc_template_tool: our Jinja as a filter, for test_chat_template.py. Each line of standard input is a JSON object
// with `template`, `data` (its variables) and `now` (Unix seconds, if it asks for the time); each line of output the
// answer:
//   {"text": "...", "request": ["...", ...]}     what it renders to, and the runs of it that come from `data`
//   {"error": "...", "code": "unsupported"}
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/jinja_template.h"

namespace {

using nmc::Json;
using nmc::JsonFields;
using nmc::Result;
namespace jinja = nmc::model::jinja;

class FixedClock final : public nmc::Clock {
 public:
  explicit FixedClock(std::int64_t seconds) : seconds_(seconds) {}
  nmc::Nanos now() const override { return nmc::Nanos(0); }
  std::int64_t unix_seconds() const override { return seconds_; }

 private:
  std::int64_t seconds_;
};

Result<jinja::Text> render(const JsonFields& request) {
  NMC_ASSIGN_OR_RETURN(const std::string source, request.string("template"));
  NMC_ASSIGN_OR_RETURN(const std::int64_t now, request.integer_or("now", 0, INT64_MAX, 0));
  NMC_ASSIGN_OR_RETURN(const jinja::Template parsed, jinja::Template::parse(source, "template"));
  jinja::Budget budget;
  jinja::Variables variables;
  if (const Json* data = request.find("data")) {
    for (const auto& [name, json] : data->items()) {
      NMC_ASSIGN_OR_RETURN(jinja::Value value, jinja::value_of_json(json, jinja::Origin::kRequest, budget));
      variables.emplace_back(name, std::move(value));
    }
  }
  return parsed.render(variables, budget, FixedClock(now));
}

Result<Json> answer(const std::string& line) {
  NMC_ASSIGN_OR_RETURN(const Json json, nmc::parse_json(line, "request", {.max_depth = 200}));
  const Result<jinja::Text> text = render(JsonFields(json));
  Json reply;
  if (!text) {
    reply["error"] = text.error().message;
    reply["code"] = nmc::error_code_name(text.error().code);
    return reply;
  }
  reply["text"] = text->bytes();
  reply["request"] = Json::array();
  for (const jinja::Text::Run& run : text->runs()) {
    if (run.origin == jinja::Origin::kRequest) reply["request"].push_back(run.bytes);
  }
  return reply;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> reply = answer(line);
    if (!reply) {
      fmt::print(stderr, "{}\n", reply.error().to_string());
      return 1;
    }
    std::cout << nmc::dump_json(*reply) << '\n';
  }
}
