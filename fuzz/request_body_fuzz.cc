// Bodies of the completion endpoints, as any client may send them. The first byte chooses the endpoint. What is
// accepted must be within the limits that the engine relies on; what is refused must say so in a well-formed error
// object.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "http/completion_request.h"
#include "http/status.h"

namespace {

using namespace nmc;
using namespace nmc::http;

void must(bool condition) {
  if (!condition) std::abort();
}

void check_accepted(const CompletionRequest& request) {
  must(request.endpoint == Endpoint::kChat ? !request.chat.messages.empty() : !request.prompts.empty());
  must(request.prompts.size() <= kPromptsMax);
  for (const Prompt& prompt : request.prompts) {
    const auto* ids = std::get_if<std::vector<engine::TokenId>>(&prompt);
    must(ids != nullptr ? !ids->empty() : is_valid_utf8(std::get<std::string>(prompt)));
  }
  for (const Json& message : request.chat.messages) {
    must(model::is_known_role(message.at("role").get_ref<const std::string&>()) && message.at("role") != "developer");
    must(message.contains("content"));
  }
  must(!(request.chat.add_generation_prompt && request.chat.continue_final_message));
  must(is_valid_utf8(dump_json(request.chat.tools)) && is_valid_utf8(dump_json(request.chat.variables)));
  must(request.max_tokens.value_or(1) >= 1);
  must(request.sampling.params.temperature >= 0 && request.sampling.params.temperature <= 2);
  must(request.sampling.params.top_p > 0 && request.sampling.params.top_p <= 1);
  must(request.sampling.params.min_p >= 0 && request.sampling.params.min_p <= 1);
  must(request.sampling.params.repetition_penalty > 0);
  for (const engine::LogitBias& bias : request.sampling.params.logit_bias) must(bias.bias >= -100 && bias.bias <= 100);
  must(request.sampling.n >= 1 && request.sampling.n * std::max<std::size_t>(1, request.prompts.size()) <= kChoicesMax);
  must(!request.max_tokens || request.sampling.min_tokens <= *request.max_tokens);
  must(request.sampling.stop_ids.size() <= kStopIdsMax);
  must(request.sampling.logprobs.value_or(0) <= kTopLogprobsMax);
  must(request.model < 2);
  must(request.stop.size() <= kStopsMax);
  for (const std::string& stop : request.stop)
    must(!stop.empty() && stop.size() <= kStopBytesMax && is_valid_utf8(stop));
  must(request.cache_salt.size() <= kCacheSaltBytesMax);
  must(request.request_id.empty() || is_request_id(request.request_id));
  must(request.sampling.params.allowed_ids.size() <= kAllowedIdsMax);
  must(request.sampling.bad_words.size() <= kBadWordsMax);
  for (const std::string& word : request.sampling.bad_words) {
    must(!word.empty() && word.size() <= kBadWordBytesMax && is_valid_utf8(word));
  }
  must(request.truncate_prompt_tokens.value_or(1) >= kToWhatFits && request.truncate_prompt_tokens.value_or(1) != 0);
  must(!(request.echo && (request.endpoint == Endpoint::kChat || request.sampling.logprobs)));
  must(request.stream || !(request.include_usage || request.continuous_usage));
}

void check_refused(const ApiError& error) {
  must(error.status == 400 || error.status == 404);
  must(!error.message.empty());
  must(error.message.find(error.param) != std::string::npos);
  const auto shown = parse_json(error_json(error), "error");
  must(shown.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  static const Served kServed{.models = {"m", "m2"}, .defaults = {}};
  const auto request =
      parse_completion_request(body, data[0] % 2 == 0 ? Endpoint::kChat : Endpoint::kCompletions, kServed);
  if (request) {
    check_accepted(*request);
  } else {
    check_refused(request.error());
  }
  return 0;
}
