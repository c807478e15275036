// The answer of an OpenAI server to a completion or a chat: when its tokens came and what it says of itself.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "lab/sse_reader.h"

namespace nmc::lab {

// Tokens as the server's `usage` counts them; nothing where it doesn't.
struct AnswerUsage {
  std::optional<std::uint64_t> prompt_tokens, output_tokens, cached_tokens;
};

// The body of a status 200, streamed or whole. Not thread-safe.
class CompletionAnswer {
 public:
  explicit CompletionAnswer(bool streamed) : streamed_(streamed) {}

  // A piece of the body that came at `at`. Errors: kUnavailable, the server reported one within the stream; kCorrupt,
  // what came is no such answer.
  Result<void> add(std::string_view body, Nanos at);
  // The body is whole. kUnavailable: the stream ended without `[DONE]` and without a finish reason, or without a token.
  Result<void> end();

  // One a chunk that brought tokens. Of an answer that isn't streamed: none.
  const std::vector<Nanos>& token_times() const { return token_times_; }
  const AnswerUsage& usage() const { return usage_; }
  const std::string& finish_reason() const { return finish_reason_; }  // "": none was told

 private:
  Result<void> take_event(const std::string& data, Nanos at);
  void take_usage(const Json& document);

  const bool streamed_;
  SseReader events_;
  std::string whole_;  // not streamed: the document so far
  std::vector<Nanos> token_times_;
  AnswerUsage usage_;
  std::string finish_reason_;
  bool done_ = false;
};

}  // namespace nmc::lab
