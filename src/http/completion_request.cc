#include "http/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "http/chat_request.h"
#include "http/request_fields.h"
#include "http/try.h"
#include "http/unsupported_fields.h"

namespace nmc::http {
namespace {

class RequestParser {
 public:
  RequestParser(const Json& body, Endpoint endpoint) : body_(body), fields_(body) { request_.endpoint = endpoint; }

  ApiResult<CompletionRequest> parse(const Served& served) {
    auto model = parse_model_field(fields_, served.models);
    if (!model) return ApiFailure(std::move(model).error());
    request_.model = *model;
    NMC_TRY(request_.endpoint == Endpoint::kChat ? parse_conversation() : parse_prompt());
    NMC_TRY(parse_max_tokens());
    NMC_TRY(parse_sampling(served.defaults));
    NMC_TRY(parse_stop());
    NMC_TRY(parse_streaming());
    NMC_TRY(parse_cache_salt());
    NMC_TRY(parse_request_id());
    NMC_TRY(parse_prompt_options());
    NMC_TRY(parse_answer_options());
    NMC_TRY(refuse_unsupported_fields(body_, request_.endpoint));
    return std::move(request_);
  }

 private:
  ApiResult<void> parse_conversation() {
    auto chat = parse_chat(body_);
    if (!chat) return ApiFailure(std::move(chat).error());
    request_.chat = std::move(*chat);
    return {};
  }

  ApiResult<void> parse_prompt() {
    const Json* prompt = fields_.find("prompt");
    if (prompt == nullptr) return bad_field("prompt", "missing");
    if (prompt->is_string()) {
      request_.prompts.emplace_back(prompt->get<std::string>());
      return {};
    }
    if (!prompt->is_array()) {
      return bad_field("prompt",
                       fmt::format("expected a string, an array of strings, an array of token ids or an array of "
                                   "such arrays, got {}",
                                   json_type_name(*prompt)));
    }
    if (prompt->empty()) return bad_field("prompt", "expected at least one token or prompt, got an empty array");
    if (prompt->front().is_number()) return add_token_ids(*prompt, "prompt");
    if (prompt->size() > kPromptsMax) {
      return bad_field("prompt", fmt::format("expected at most {} prompts, got {}", kPromptsMax, prompt->size()));
    }
    for (std::size_t i = 0; i < prompt->size(); ++i) {
      const Json& item = (*prompt)[i];
      const std::string path = fmt::format("prompt[{}]", i);
      if (item.is_string() && prompt->front().is_string()) {
        request_.prompts.emplace_back(item.get<std::string>());
      } else if (item.is_array() && prompt->front().is_array()) {
        if (item.empty()) return bad_prompt(path, "expected at least one token id, got an empty array");
        NMC_TRY(add_token_ids(item, path));
      } else {
        return bad_prompt(
            path, fmt::format("expected strings only or arrays of token ids only, got {}", json_type_name(item)));
      }
    }
    return {};
  }

  ApiResult<void> add_token_ids(const Json& array, const std::string& path) {
    auto ids = parse_token_ids(array, path, "prompt");
    if (!ids) return ApiFailure(std::move(ids).error());
    request_.prompts.emplace_back(std::move(*ids));
    return {};
  }

  static ApiFailure bad_prompt(const std::string& path, std::string message) {
    return ApiFailure(ApiError{400, fmt::format("`{}`: {}", path, message), "prompt"});
  }

  // The newer name wins; both are checked.
  ApiResult<void> parse_max_tokens() {
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
      if (request_.endpoint == Endpoint::kCompletions && name == std::string_view("max_completion_tokens")) continue;
      const Json* value = fields_.find(name);
      if (value == nullptr) continue;
      if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0) {
        return bad_field(name, fmt::format("expected an integer of at least 1, got {}", describe_json(*value)));
      }
      request_.max_tokens = value->get<std::uint64_t>();
    }
    return {};
  }

  ApiResult<void> parse_sampling(const model::GenerationDefaults& defaults) {
    auto sampling = parse_sampling_fields(fields_, request_.endpoint, request_.max_tokens, defaults);
    if (!sampling) return ApiFailure(std::move(sampling).error());
    request_.sampling = std::move(*sampling);
    const std::size_t prompts = std::max<std::size_t>(1, request_.prompts.size());
    if (prompts * request_.sampling.n > kChoicesMax) {
      return bad_field("n", fmt::format("{} answers to each of {} prompts are more than {} together",
                                        request_.sampling.n, prompts, kChoicesMax));
    }
    return take(fields_.boolean_or("skip_special_tokens", true), "skip_special_tokens", request_.skip_special_tokens);
  }

  ApiResult<void> parse_stop() {
    const Json* stop = fields_.find("stop");
    if (stop == nullptr) return {};
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    if (list.size() > kStopsMax) {
      return bad_field("stop", fmt::format("expected at most {} strings, got {}", kStopsMax, list.size()));
    }
    for (const Json& item : list) {
      if (!item.is_string()) {
        return bad_field("stop", fmt::format("expected a string or an array of strings, got {}{}",
                                             stop->is_array() ? "one with " : "", json_type_name(item)));
      }
      const auto& text = item.get_ref<const std::string&>();
      if (text.empty() || text.size() > kStopBytesMax) {
        return bad_field("stop",
                         fmt::format("expected strings of 1 to {} bytes, got one of {}", kStopBytesMax, text.size()));
      }
      request_.stop.push_back(text);
    }
    return {};
  }

  ApiResult<void> parse_streaming() {
    NMC_TRY(take(fields_.boolean_or("stream", false), "stream", request_.stream));
    if (request_.stream && request_.sampling.prompt_logprobs)
      return bad_field("prompt_logprobs", "only allowed when `stream` is false");
    const Json* options = fields_.find("stream_options");
    if (options == nullptr) return {};
    if (!options->is_object()) {
      return bad_field("stream_options", fmt::format("expected an object, got {}", json_type_name(*options)));
    }
    if (!request_.stream) return bad_field("stream_options", "only allowed when `stream` is true");
    const JsonFields fields(*options, "stream_options");
    NMC_TRY(take(fields.boolean_or("include_usage", false), "stream_options", request_.include_usage));
    NMC_TRY(take(fields.boolean_or("continuous_usage_stats", false), "stream_options", request_.continuous_usage));
    // As in vLLM: without include_usage it has no effect.
    request_.continuous_usage = request_.continuous_usage && request_.include_usage;
    return {};
  }

  ApiResult<void> parse_cache_salt() {
    NMC_TRY(take(fields_.string_or("cache_salt", ""), "cache_salt", request_.cache_salt));
    if (request_.cache_salt.size() <= kCacheSaltBytesMax) return {};
    return bad_field("cache_salt",
                     fmt::format("expected at most {} bytes, got {}", kCacheSaltBytesMax, request_.cache_salt.size()));
  }

  ApiResult<void> parse_request_id() {
    if (fields_.find("request_id") == nullptr) return {};
    NMC_TRY(take(fields_.string("request_id"), "request_id", request_.request_id));
    return is_request_id(request_.request_id) ? ApiResult<void>() : bad_field("request_id", kRequestIdExpected);
  }

  ApiResult<void> parse_prompt_options() {
    const bool chat = request_.endpoint == Endpoint::kChat;
    NMC_TRY(take(fields_.boolean_or("add_special_tokens", !chat), "add_special_tokens", request_.add_special_tokens));
    if (fields_.find("truncate_prompt_tokens") == nullptr) return {};
    std::int64_t& kept = request_.truncate_prompt_tokens.emplace();
    NMC_TRY(take(fields_.integer("truncate_prompt_tokens", kToWhatFits, std::numeric_limits<std::int64_t>::max()),
                 "truncate_prompt_tokens", kept));
    if (kept != 0) return {};
    return bad_field("truncate_prompt_tokens", "expected at least 1, or -1 for what fits, got 0");
  }

  ApiResult<void> parse_answer_options() {
    NMC_TRY(take(fields_.boolean_or("include_stop_str_in_output", false), "include_stop_str_in_output",
                 request_.include_stop));
    NMC_TRY(take(fields_.boolean_or("return_token_ids", false), "return_token_ids", request_.return_token_ids));
    if (request_.endpoint == Endpoint::kChat) return {};
    return take(fields_.boolean_or("echo", false), "echo", request_.echo);
  }

  const Json& body_;
  const JsonFields fields_;
  CompletionRequest request_;
};

}  // namespace

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kRequestIdBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, Endpoint endpoint, const Served& served) {
  auto json = parse_body(body);
  if (!json) return ApiFailure(std::move(json).error());
  return RequestParser(*json, endpoint).parse(served);
}

}  // namespace nmc::http
