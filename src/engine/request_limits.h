// What a runtime takes: the same for all of them.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/request.h"
#include "engine/runtime.h"
#include "model/config.h"
#include "store/store.h"

namespace nmc::engine {

// `options` with max_context as the model allows.
RuntimeOptions with_context_of(RuntimeOptions options, const model::ModelConfig& config);

// kInvalidArgument: the prompt is empty, holds an unknown id, or prompt and max_tokens don't fit context or block pool.
Result<void> check_request(const GenerateRequest& request, const RuntimeOptions& options, std::size_t vocab,
                           const store::Store& store);

// Of a request whose deadline passed when so much of its answer was out.
Error deadline_error(const GenerateRequest& request, std::size_t generated_tokens);

// Of a request that no worker took in time.
Error queue_deadline_error(const GenerateRequest& request);

}  // namespace nmc::engine
