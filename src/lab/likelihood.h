// How likely a model finds a text, token by token: the number by which two ways of computing the same thing (another
// dtype, KV from a cache, a hand-over) are compared.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/runtime.h"

namespace nmc::lab {

struct Likelihood {
  std::vector<float> logprobs;  // natural logarithms, of the tokens after the given ones
  engine::RequestMetrics metrics;

  double total() const;       // of all; nats
  double per_token() const;   // mean
  double perplexity() const;  // exp(-per_token())
};

// Runs `tokens` through the runtime as a request does: the first `given` are its prompt, prefilled from whatever is
// cached; the others are taken one after another in place of what would be drawn, each after its probability is noted.
// `id` as in engine::GenerateRequest. kInvalidArgument unless 1 <= given < tokens.size().
Result<Likelihood> measure_likelihood(engine::Runtime& runtime, const std::string& id,
                                      std::span<const engine::TokenId> tokens, std::size_t given);

}  // namespace nmc::lab
