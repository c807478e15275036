// Whether the served path gives what other computations of the same model give: logits position by position.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "evidence/report.h"
#include "model/model.h"

namespace nmc::lab {

struct ParityOptions {
  std::uint64_t seed = 1;          // of the prompt's ids
  std::size_t prompt_tokens = 48;  // as many as the context allows together with the answer
  std::size_t output_tokens = 8;
  std::string folder;              // of the checkpoint, for transformers; "": it isn't one
  std::string python = "python3";  // that may have transformers
};

// Two rows. "full-attention": the served path (prefill and decode on workers of their own, KV handed over as a
// snapshot, the second time from the cache) against one pass over the whole sequence with all its KV in one piece and
// nothing cached, in this build. "transformers": that pass against the Python package, or not_available with the
// reason.
Result<std::vector<evidence::ParityRow>> check_parity(const model::Model& model, const ParityOptions& options,
                                                      ThreadPool& pool);

}  // namespace nmc::lab
