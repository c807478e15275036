// One request through a runtime, waited for.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/runtime.h"

namespace nmc::lab {

struct Completion {
  std::vector<engine::TokenId> tokens;
  std::vector<engine::SampledToken> sampled;  // the same, with their logprobs where those were asked for
  engine::FinishReason reason = engine::FinishReason::kStop;
  engine::RequestMetrics metrics;
};

// Submits, blocks until it has finished. A request that failed or was cancelled is an error.
Result<Completion> run_request(engine::Runtime& runtime, engine::GenerateRequest request);

}  // namespace nmc::lab
