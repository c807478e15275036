// Logits to one token.
#pragma once

#include <span>

#include "engine/request.h"

namespace nmc::engine {

// The token that follows `position` tokens. The noise is keyed by (params.seed, position): the same logits give the
// same token whatever else ran, so a request that is resumed or moved elsewhere goes on as it would have. Temperature 0
// is argmax, the lowest id among equals. top_k and top_p keep the likeliest ids (ties by lower id); at least one id is
// always kept.
TokenId sample(std::span<const float> logits, const SamplingParams& params, std::size_t position);

}  // namespace nmc::engine
