// Bodies of /v1/completions and /v1/chat/completions as checked values. What a client sends is taken as meant or
// refused by the field's name; a field that would change the answer and isn't supported is refused when it asks for
// something. Fields unknown to us are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "http/endpoint.h"
#include "http/sampling_fields.h"
#include "http/status.h"
#include "model/chat_template.h"
#include "model/generation_defaults.h"

namespace nmc::http {

using Prompt = std::variant<std::string, std::vector<engine::TokenId>>;

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  model::Chat chat;             // kChat: at least one message
  std::vector<Prompt> prompts;  // kCompletions: at least one; token ids are not checked against a vocabulary

  std::size_t model = 0;                  // index in Served::models
  std::optional<std::size_t> max_tokens;  // at least 1
  SamplingFields sampling;                // prompts times sampling.n is at most kChoicesMax
  std::vector<std::string> stop;          // none empty
  bool include_stop = false;              // what ended the answer is shown with it
  bool skip_special_tokens = true;        // control tokens aren't shown
  std::string cache_salt;
  std::string request_id;  // the client's name for it; "": none given

  bool add_special_tokens = true;  // the start token goes in front of a text, where the tokenizer has one; a chat's
                                   // template says itself what goes in front
  std::optional<std::int64_t> truncate_prompt_tokens;  // so many of the last are kept; kToWhatFits: as many as fit
  bool echo = false;                                   // kCompletions: the prompt goes ahead of the answer
  bool return_token_ids = false;

  bool stream = false;
  bool include_usage = false;     // of a stream: totals in a last chunk
  bool continuous_usage = false;  // of a stream: totals so far in each chunk
};

inline constexpr std::size_t kPromptsMax = kChoicesMax;  // of one request
inline constexpr std::size_t kStopsMax = 16;
inline constexpr std::size_t kStopBytesMax = 1024;  // of one stop string
inline constexpr std::size_t kCacheSaltBytesMax = 1024;
inline constexpr std::size_t kRequestIdBytesMax = 128;
inline constexpr std::int64_t kToWhatFits = -1;

// Visible characters of ASCII, 1 to kRequestIdBytesMax of them: it is sent back in a header.
bool is_request_id(std::string_view text);
inline constexpr const char* kRequestIdExpected = "expected 1 to 128 visible ASCII characters";

// What requests are read against.
struct Served {
  std::vector<std::string> models;  // names; the first is meant where none is given
  model::GenerationDefaults defaults;
};

// A model's name that isn't served is a 404. Pure: depends on nothing but its arguments. Time and memory are linear in
// the body.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, Endpoint endpoint, const Served& served);

}  // namespace nmc::http
