#include "http/token_request.h"

#include <nlohmann/json.hpp>

#include "http/chat_request.h"
#include "http/request_fields.h"
#include "http/try.h"
#include "http/unsupported_fields.h"

namespace nmc::http {
namespace {

ApiResult<void> parse_chat_form(const Json& body, TokenizeRequest& request) {
  auto chat = parse_chat(body);
  if (!chat) return ApiFailure(std::move(chat).error());
  request.chat = std::move(*chat);
  NMC_TRY(
      take(JsonFields(body).boolean_or("add_special_tokens", false), "add_special_tokens", request.add_special_tokens));
  return refuse_unsupported_conversation_fields(body);
}

ApiResult<void> parse_prompt_form(const JsonFields& fields, TokenizeRequest& request) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return bad_field("prompt", "missing; expected `prompt` or `messages`");
  NMC_TRY(take(fields.string("prompt"), "prompt", request.prompt));
  return take(fields.boolean_or("add_special_tokens", true), "add_special_tokens", request.add_special_tokens);
}

}  // namespace

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Served& served) {
  auto json = parse_body(body);
  if (!json) return ApiFailure(std::move(json).error());
  const JsonFields fields(*json);
  TokenizeRequest request;
  NMC_TRY(parse_model_field(fields, served.models));
  NMC_TRY(take(fields.boolean_or("return_token_strs", false), "return_token_strs", request.return_token_strs));
  const bool chat = fields.find("messages") != nullptr;
  if (chat && fields.find("prompt") != nullptr) {
    return bad_field("prompt", "can't be given together with `messages`");
  }
  NMC_TRY(chat ? parse_chat_form(*json, request) : parse_prompt_form(fields, request));
  return request;
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const Served& served) {
  auto json = parse_body(body);
  if (!json) return ApiFailure(std::move(json).error());
  const JsonFields fields(*json);
  NMC_TRY(parse_model_field(fields, served.models));
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr) return bad_field("tokens", "missing");
  if (!tokens->is_array()) {
    return bad_field("tokens", fmt::format("expected an array of token ids, got {}", json_type_name(*tokens)));
  }
  auto ids = parse_token_ids(*tokens, "tokens", "tokens");
  if (!ids) return ApiFailure(std::move(ids).error());
  return DetokenizeRequest{std::move(*ids)};
}

}  // namespace nmc::http
