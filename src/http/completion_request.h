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
#include "http/status.h"
#include "model/chat_template.h"

namespace nmc::http {

enum class Endpoint { kChat, kCompletions };

using Prompt = std::variant<std::string, std::vector<engine::TokenId>>;

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<model::ChatMessage> messages;  // kChat: at least one
  std::vector<Prompt> prompts;  // kCompletions: at least one; token ids are not checked against a vocabulary

  std::optional<std::size_t> max_tokens;  // at least 1
  float temperature = 1.0f;               // [0, 2]
  float top_p = 1.0f;                     // (0, 1]
  std::uint32_t top_k = 0;                // 0: all
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;  // none empty
  bool ignore_eos = false;
  std::string cache_salt;

  bool stream = false;
  bool include_usage = false;     // of a stream: totals in a last chunk
  bool continuous_usage = false;  // of a stream: totals so far in each chunk
};

inline constexpr std::size_t kPromptsMax = 256;  // of one request
inline constexpr std::size_t kStopsMax = 16;
inline constexpr std::size_t kStopBytesMax = 1024;  // of one stop string
inline constexpr std::size_t kCacheSaltBytesMax = 1024;

// `model` absent or null means the served one; another name is a 404. Pure: depends on nothing but its arguments. Time
// and memory are linear in the body.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, Endpoint endpoint,
                                                      std::string_view served_model_name);

}  // namespace nmc::http
