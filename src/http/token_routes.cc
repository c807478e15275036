#include "http/token_routes.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "http/engine_request.h"
#include "http/logprobs_format.h"
#include "http/responses.h"
#include "http/status.h"
#include "http/token_request.h"

namespace nmc::http {
namespace {

using engine::TokenId;

ApiResult<net::HttpResponse> tokenize(const ServerState& state, const std::string& body) {
  auto request = parse_tokenize_request(body, state.served);
  if (!request) return ApiFailure(std::move(request).error());
  ApiResult<std::vector<TokenId>> ids = request->chat
                                            ? chat_ids(*request->chat, request->add_special_tokens, state.model)
                                            : text_ids(request->prompt, request->add_special_tokens, state.model);
  if (!ids) return ApiFailure(std::move(ids).error());
  Json json;
  json["count"] = ids->size();
  json["max_model_len"] = state.context;
  json["tokens"] = *ids;
  json["token_strs"] = nullptr;
  if (request->return_token_strs) {
    Json& texts = json["token_strs"] = Json::array();
    for (const TokenId id : *ids) texts.push_back(token_string(*state.model.tokenizer, id));
  }
  return json_response(json);
}

ApiResult<net::HttpResponse> detokenize(const ServerState& state, const std::string& body) {
  const auto request = parse_detokenize_request(body, state.served);
  if (!request) return ApiFailure(request.error());
  for (const TokenId id : request->tokens) {
    if (id >= state.model.config.vocab) return bad_field("tokens", unknown_token(id, state.model));
  }
  Json json;
  json["prompt"] = state.model.tokenizer->decode(request->tokens, /*skip_special=*/false);
  return json_response(json);
}

void answer_with(Call call, ApiResult<net::HttpResponse> (*work)(const ServerState& state, const std::string& body)) {
  with_json_body(std::move(call), [work](const auto& state, const std::string& body, const Exchange& exchange) {
    auto response = work(*state, body);
    exchange->respond(response ? std::move(*response) : error_response(response.error()));
  });
}

}  // namespace

void answer_tokenize(Call call) { answer_with(std::move(call), tokenize); }
void answer_detokenize(Call call) { answer_with(std::move(call), detokenize); }

}  // namespace nmc::http
