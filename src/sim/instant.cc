#include "sim/instant.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::sim {

store::Use use_of(const Trace& trace, const TraceRequest& request, std::uint32_t block, std::uint32_t index,
                  const CostModel& cost) {
  const double from = static_cast<double>(index) * trace.block_tokens();
  const double to = std::min<double>(from + trace.block_tokens(), request.input_tokens);
  return {.key = trace.key_of(block),
          .position = index,
          .saved_s = cost.prefill.span_s(from, to),
          .bytes = (to - from) * cost.bytes_per_token};
}

Result<HitCounts> replay_instant(const Trace& trace, std::string_view policy, std::uint64_t capacity_blocks,
                                 const CostModel& cost) {
  NMC_ASSIGN_OR_RETURN(BlockCache cache, BlockCache::create(policy, capacity_blocks, trace));
  HitCounts counts;
  std::uint64_t use = 0;
  for (const TraceRequest& request : trace.requests()) {
    const auto blocks = trace.blocks_of(request);
    std::uint64_t hits = 0;
    while (hits < blocks.size() && cache.has(blocks[hits])) ++hits;
    std::uint64_t any = hits;
    for (std::size_t i = hits; i < blocks.size(); ++i) any += cache.has(blocks[i]) ? 1 : 0;
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      cache.advance(use++);
      cache.use(blocks[i], use_of(trace, request, blocks[i], i, cost));
    }
    const std::uint64_t hit_tokens = hits * trace.block_tokens();
    ++counts.requests;
    counts.full_hit_requests += hits == blocks.size() ? 1 : 0;
    counts.some_hit_requests += hits > 0 ? 1 : 0;
    counts.blocks += blocks.size();
    counts.hit_blocks += hits;
    counts.any_hit_blocks += any;
    counts.input_tokens += request.input_tokens;
    counts.hit_tokens += std::min<std::uint64_t>(hit_tokens, request.input_tokens);
    counts.hit_tokens_capped += std::min<std::uint64_t>(hit_tokens, request.input_tokens - 1);
  }
  counts.inserted_blocks = cache.inserted();
  counts.evicted_blocks = cache.evicted();
  counts.resident_blocks = cache.size();
  NMC_ASSERT(counts.inserted_blocks == counts.evicted_blocks + counts.resident_blocks, "inserted={} evicted={} here={}",
             counts.inserted_blocks, counts.evicted_blocks, counts.resident_blocks);
  return counts;
}

}  // namespace nmc::sim
