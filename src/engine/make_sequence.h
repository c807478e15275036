// From a request to the sequence that a worker computes.
#pragma once

#include <memory>
#include <span>

#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "engine/runtime.h"
#include "engine/sequence.h"

namespace nmc::engine {

// `generated`: what of the answer is out already. `cache`: of the worker that begins with it; null: nothing is reused.
// Its listener and its place in the order are the caller's to set.
std::unique_ptr<Sequence> make_sequence(GenerateRequest request, std::span<const TokenId> generated,
                                        const PrefixCache* cache, const RuntimeOptions& options);

}  // namespace nmc::engine
