#include "lab/load_body.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace nmc::lab {

std::string format_body(const LoadPrompt& prompt, const BodyOptions& options) {
  Json body = {{"model", options.model}};
  if (options.chat)
    body["messages"] = Json::array({{{"role", "user"}, {"content", words_of(prompt.tokens)}}});
  else if (options.text)
    body["prompt"] = words_of(prompt.tokens);
  else
    body["prompt"] = prompt.tokens;
  body["max_tokens"] = prompt.output_tokens;
  body["temperature"] = 0;
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (!prompt.salt.empty()) body["cache_salt"] = prompt.salt;
  if (options.streamed) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  return dump_json(body);
}

}  // namespace nmc::lab
