// The built-in model: a few layers of random weights over bytes. What it says means nothing; that it says letters and
// not control bytes is arranged, so that a demo's output can be printed.
#pragma once

#include <memory>

#include "base/dtype.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/decoder.h"

namespace nmc::model {

inline constexpr std::uint64_t kTinySeed = 20240607;

ModelConfig tiny_config();
Result<std::unique_ptr<Decoder>> make_tiny_decoder(Dtype dtype, ThreadPool& pool, std::uint64_t seed = kTinySeed,
                                                   const PackOptions& options = {});

}  // namespace nmc::model
