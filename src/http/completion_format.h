// The JSON of answers: whole ones and the chunks of a stream, for both endpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "http/completion_request.h"

namespace nmc::http {

struct Usage {
  std::size_t prompt_tokens = 0;
  std::size_t completion_tokens = 0;
  std::size_t cached_tokens = 0;  // of the prompt: not computed

  Usage& operator+=(const Usage& other);
};

// How an answer ended; `reason` is "stop" or "length", `stop_reason` the stop string or the id of `stop_token_ids` that
// was met, else null.
struct Ending {
  const char* reason = "stop";
  Json stop_reason;
};

struct FinishedChoice {
  std::string text;
  Json logprobs;  // null where they weren't asked for
  Ending ending;
  std::optional<Json> token_ids, prompt_token_ids, prompt_logprobs;  // where asked for
};

// A piece of a choice in a stream. What is nullptr or nullopt has no field, but for `ending`.
struct ChunkedChoice {
  std::size_t index = 0;
  std::string_view text;
  Json logprobs;
  const Ending* ending = nullptr;  // nullptr: it goes on
  const Json* usage = nullptr;     // as it is to be shown in the chunk
  std::optional<Json> token_ids, prompt_token_ids;
};

// Immutable.
class CompletionFormat {
 public:
  CompletionFormat(Endpoint endpoint, std::string id, std::int64_t created, std::string model);

  std::string whole(std::span<const FinishedChoice> choices, const Usage& usage) const;

  // Chunks, as server-sent events.
  std::string role_event(ChunkedChoice chunk) const;  // the first of a chat's choice; text and tokens are ignored
  std::string text_event(ChunkedChoice chunk) const;
  std::string usage_event(const Usage& usage) const;

  static Json usage_json(const Usage& usage);

 private:
  Json envelope(const char* chat_object, const char* completions_object) const;
  std::string event(Json choice, ChunkedChoice chunk) const;

  Endpoint endpoint_;
  std::string id_;
  std::int64_t created_;
  std::string model_;
};

inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
std::string sse_event(const Json& data);

}  // namespace nmc::http
