// Logits to one token.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/request.h"

namespace nmc::engine {

// The token that follows `position` tokens. The noise is keyed by (params.seed, position): the same logits give the
// same token whatever else ran, so a request that is resumed or moved elsewhere goes on as it would have. Temperature 0
// is argmax, the lowest id among equals. top_k and top_p keep the likeliest ids (ties by lower id); at least one id is
// always kept.
//
// Logits change in this order: the bias is added, then repetition, frequency and presence count, then what is barred,
// what would complete a bad sequence and what isn't allowed falls out (if that is all, the allowed ids stay as the
// model has them); temperature, top_k, top_p and min_p work on what that leaves.
struct History {
  std::span<const TokenId> prompt;
  std::span<const TokenId> generated;
  std::span<const TokenId> barred;  // not drawn now
};
TokenId sample(std::span<const float> logits, const SamplingParams& params, std::size_t position,
               const History& history = {});

// The logprob of `id`, then those of the `count` likeliest (ties by lower id), most likely first.
std::vector<Logprob> logprobs_of(std::span<const float> logits, TokenId id, std::size_t count);

// 1 and the number of ids that are likelier than `id`.
std::uint32_t rank_of(std::span<const float> logits, TokenId id);

}  // namespace nmc::engine
