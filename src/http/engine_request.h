// From what a client asked to what the engine computes: text and messages become token ids, limits become numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "http/completion_request.h"
#include "http/status.h"
#include "model/model.h"

namespace nmc::http {

struct EngineLimits {
  std::size_t context = 0;        // prompt and answer together, at least 2
  std::optional<Nanos> deadline;  // of the requests
};

// Ids of a prompt given as text, in which control tokens may be spelled; of a conversation, in which they may not be.
// `add_special_tokens`: with the start token in front where the tokenizer is one that does that.
std::vector<engine::TokenId> text_ids(std::string_view text, bool add_special_tokens, const model::Model& model);
ApiResult<std::vector<engine::TokenId>> chat_ids(const model::Chat& chat, bool add_special_tokens,
                                                 const model::Model& model);

// What an error says of an id that isn't in the vocabulary.
std::string unknown_token(engine::TokenId id, const model::Model& model);

// What a plain completion generates when it doesn't say how much; a chat goes on to the end of the context.
inline constexpr std::size_t kDefaultMaxTokens = 16;

// One engine request for each answer, those to one prompt together, named `id`-0, `id`-1, ... A max_tokens beyond the
// context is cut to what fits. `random_seed` is for requests without a seed of their own; answers of one request differ
// in theirs. Errors name the field.
ApiResult<std::vector<engine::GenerateRequest>> make_engine_requests(const CompletionRequest& request,
                                                                     const std::string& id, const model::Model& model,
                                                                     const EngineLimits& limits,
                                                                     std::uint64_t random_seed);

}  // namespace nmc::http
