#include "engine/request_limits.h"

namespace nmc::engine {

RuntimeOptions with_context_of(RuntimeOptions options, const model::ModelConfig& config) {
  const std::size_t limit = config.max_positions;
  if (options.max_context == 0 || options.max_context > limit) options.max_context = limit;
  return options;
}

Result<void> check_request(const GenerateRequest& request, const RuntimeOptions& options, std::size_t vocab,
                           const store::Store& store) {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty, expected at least one token");
  if (request.max_tokens == 0) return invalid_argument("max_tokens is 0, expected at least 1");
  for (const TokenId id : request.prompt) {
    if (id >= vocab) {
      return invalid_argument("prompt holds token id {}, expected ids below {}", id, vocab);
    }
  }
  for (const TokenId id : request.forced) {
    if (id >= vocab) {
      return invalid_argument("the answer to take holds token id {}, expected ids below {}", id, vocab);
    }
  }
  if (request.prompt.size() >= options.max_context ||
      request.max_tokens > options.max_context - request.prompt.size()) {
    return invalid_argument("prompt of {} tokens and max_tokens {} don't fit the context of {} tokens",
                            request.prompt.size(), request.max_tokens, options.max_context);
  }
  const std::size_t tokens = request.prompt.size() + request.max_tokens - 1;
  const std::size_t blocks = (tokens + options.block_tokens - 1) / options.block_tokens;
  const std::size_t pool_blocks = store.blocks_total();
  if (blocks > pool_blocks) {
    return invalid_argument("prompt of {} tokens and max_tokens {} need {} KV blocks, the pool has {} (dram bytes {})",
                            request.prompt.size(), request.max_tokens, blocks, pool_blocks, store.options().dram_bytes);
  }
  return {};
}

Error deadline_error(const GenerateRequest& request, std::size_t generated_tokens) {
  return Error{ErrorCode::kDeadlineExceeded,
               fmt::format("request {}: its deadline passed after {} tokens", request.id, generated_tokens)};
}

Error queue_deadline_error(const GenerateRequest& request) {
  return Error{ErrorCode::kUnavailable,
               fmt::format("request {}: it waited in the queue for longer than it may", request.id)};
}

}  // namespace nmc::engine
