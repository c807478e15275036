// nmc_template_tool [FOLDER]: our Jinja as a filter, for test_chat_template.py. Each line of standard input is a JSON
// object; each line of output the answer, or {"error": "...", "code": "unsupported"}.
//   {"template": "...", "data": {...}, "now": 0}    a template with its variables, and the time in Unix seconds
//     {"text": "...", "request": ["...", ...]}      what it renders to, and the runs of it that come from `data`
//   {"messages": [...], "tools": [...]}             a chat by the template and tokenizer of FOLDER
//     [ids]
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/chat_template.h"
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

struct Folder {
  std::unique_ptr<nmc::model::Tokenizer> tokenizer;
  std::unique_ptr<nmc::model::ChatTemplate> chat_template;
};

Result<Folder> load(const char* path) {
  Folder folder;
  if (path == nullptr) return folder;
  NMC_ASSIGN_OR_RETURN(folder.tokenizer, nmc::model::load_tokenizer(path));
  NMC_ASSIGN_OR_RETURN(folder.chat_template, nmc::model::load_chat_template(path));
  return folder;
}

Json error_json(const nmc::Error& error) {
  Json reply;
  reply["error"] = error.message;
  reply["code"] = nmc::error_code_name(error.code);
  return reply;
}

Json chat_ids(const Folder& folder, const Json& request) {
  nmc::model::Chat chat;
  for (const Json& message : request["messages"]) chat.messages.push_back(message);
  chat.tools = request.value("tools", Json());
  const auto ids = folder.chat_template->render(*folder.tokenizer, chat);
  return ids ? Json(*ids) : error_json(ids.error());
}

Result<Json> answer(const Folder& folder, const std::string& line) {
  NMC_ASSIGN_OR_RETURN(const Json json, nmc::parse_json(line, "request", {.max_depth = 200}));
  if (folder.tokenizer != nullptr) return chat_ids(folder, json);
  const Result<jinja::Text> text = render(JsonFields(json));
  if (!text) return error_json(text.error());
  Json reply;
  reply["text"] = text->bytes();
  reply["request"] = Json::array();
  for (const jinja::Text::Run& run : text->runs()) {
    if (run.origin == jinja::Origin::kRequest) reply["request"].push_back(run.bytes);
  }
  return reply;
}

}  // namespace

int main(int argc, char** argv) {
  const Result<Folder> folder = load(argc > 1 ? argv[1] : nullptr);
  if (!folder) {
    fmt::print(stderr, "{}\n", folder.error().to_string());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> reply = answer(*folder, line);
    if (!reply) {
      fmt::print(stderr, "{}\n", reply.error().to_string());
      return 1;
    }
    std::cout << nmc::dump_json(*reply) << '\n';
  }
}
