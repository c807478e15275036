// Bodies of POST /tokenize and /detokenize as checked values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "http/completion_request.h"
#include "http/status.h"
#include "model/chat_template.h"

namespace nmc::http {

struct TokenizeRequest {
  std::string prompt;               // without a chat
  std::optional<model::Chat> chat;  // the ids are those that a chat completion would get
  bool add_special_tokens = true;   // the start token, where the tokenizer has one put in front
  bool return_token_strs = false;
};
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Served& served);

struct DetokenizeRequest {
  std::vector<engine::TokenId> tokens;  // not checked against a vocabulary
};
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const Served& served);

}  // namespace nmc::http
