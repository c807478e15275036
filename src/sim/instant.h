// A trace against one cache, without time: requests one by one in their order, each sees all that the ones before it
// left. These are the rules by which hit rates of traces are compared:
//
//   - a lookup walks the prompt's blocks from the first and stops at the first that isn't here: those before are hits;
//   - then each block of the prompt is touched or taken in, first to last, and one block goes whenever there are more
//   than
//     the capacity; a partial last block is a block like any other, and a block that comes twice is used twice;
//   - tokens of n hits are min(n x block_tokens, tokens of the prompt); capped, one token less at most, since an engine
//     has to compute one.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "sim/block_cache.h"
#include "sim/prefill_cost.h"
#include "sim/trace.h"

namespace nmc::sim {

struct CostModel {
  PrefillCost prefill;
  double bytes_per_token = 131072;  // of KV: 32 layers, 8 heads of 128, two bytes
};

struct HitCounts {
  std::uint64_t requests = 0;
  std::uint64_t full_hit_requests = 0;  // all blocks were hits
  std::uint64_t some_hit_requests = 0;  // the first one was
  std::uint64_t blocks = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t any_hit_blocks = 0;  // that were here, wherever in the prompt
  std::uint64_t input_tokens = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t hit_tokens_capped = 0;
  std::uint64_t inserted_blocks = 0;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t resident_blocks = 0;  // at the end: what was inserted and not evicted
};

// What a policy is told of block `index` of a prompt.
store::Use use_of(const Trace& trace, const TraceRequest& request, std::uint32_t block, std::uint32_t index,
                  const CostModel& cost);

// kInvalidArgument for a policy that isn't one.
Result<HitCounts> replay_instant(const Trace& trace, std::string_view policy, std::uint64_t capacity_blocks,
                                 const CostModel& cost);

}  // namespace nmc::sim
