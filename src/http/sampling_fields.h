// The fields of a request that say how its tokens are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "http/endpoint.h"
#include "http/status.h"
#include "model/generation_defaults.h"

namespace nmc::http {

inline constexpr std::size_t kChoicesMax = 256;       // answers of one request: prompts times n
inline constexpr std::uint32_t kTopLogprobsMax = 20;  // of one token
inline constexpr std::size_t kLogitBiasesMax = 1024;  // entries of logit_bias
inline constexpr std::size_t kStopIdsMax = 128;
inline constexpr std::size_t kAllowedIdsMax = 4096;
inline constexpr std::size_t kBadWordsMax = 128;
inline constexpr std::size_t kBadWordBytesMax = 1024;  // of one

struct SamplingFields {
  engine::SamplingParams params;       // without the seed and the ids of bad_words
  std::vector<std::string> bad_words;  // none empty
  std::optional<std::uint64_t> seed;
  std::size_t n = 1;           // answers to each prompt, 1 .. kChoicesMax
  std::size_t min_tokens = 0;  // not above max_tokens, where that is given
  std::vector<engine::TokenId> stop_ids;
  std::optional<std::uint32_t> logprobs;         // how many of the likeliest are told with each token
  std::optional<std::uint32_t> prompt_logprobs;  // the same of the prompt's tokens
  bool ignore_eos = false;
};

// `max_tokens` as the request gives it. What a request leaves out is as `defaults` has it. Ids are not checked against
// a vocabulary.
ApiResult<SamplingFields> parse_sampling_fields(const JsonFields& fields, Endpoint endpoint,
                                                std::optional<std::size_t> max_tokens,
                                                const model::GenerationDefaults& defaults);

}  // namespace nmc::http
