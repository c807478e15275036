#include "sim/trace_assembler.h"

#include <fmt/core.h>

namespace nmc::sim {
namespace {

constexpr std::uint64_t kLone = std::uint64_t{1} << 63;  // keys of blocks that one prompt has for itself

}  // namespace

Result<void> TraceAssembler::add(const Common& common, std::int64_t input_tokens, std::span<const std::uint64_t> keys) {
  if (!options_.sort && !trace_.requests().empty()) {
    const TraceRequest& before = trace_.requests().back();
    if (common.arrival_us < before.arrival_us) {
      return invalid_argument(
          "{}:{}: `{}`: this request arrives {:.3f} ms before that of line {}; expected requests in order of arrival, "
          "or --sort",
          trace_.name(), common.line, common.time_field,
          static_cast<double>(before.arrival_us - common.arrival_us) / 1000, before.line);
    }
  }
  TraceRequest request;
  request.arrival_us = common.arrival_us;
  request.input_tokens = static_cast<std::uint32_t>(input_tokens);
  request.output_tokens = static_cast<std::uint32_t>(common.output_tokens);
  request.session = common.session;
  request.line = common.line;
  return trace_.add(request, keys);
}

Result<void> TraceAssembler::add_chain(const Common& common, std::int64_t input_tokens,
                                       std::span<const std::uint64_t> hash_ids) {
#if !defined(NMC_PLANT_TRACE)  // a deliberate mistake, to see that fuzzing finds it
  const std::int64_t wanted = (input_tokens + options_.block_tokens - 1) / options_.block_tokens;
  if (static_cast<std::int64_t>(hash_ids.size()) != wanted) {
    return invalid_argument(
        "{}:{}: `hash_ids`: {} ids for {} tokens, expected {}: one a block of {} tokens (--chunk-size)", trace_.name(),
        common.line, hash_ids.size(), input_tokens, wanted, options_.block_tokens);
  }
#endif
  return add(common, input_tokens, hash_ids);
}

Result<void> TraceAssembler::add_prefixed(const Common& common, std::string_view name_space, std::string_view prefix_id,
                                          std::int64_t prefix_tokens, std::int64_t suffix_tokens) {
  const std::int64_t input_tokens = prefix_tokens + suffix_tokens;
  if (input_tokens < 1 || input_tokens > kTokensMax) {
    return invalid_argument("{}:{}: `prefix_tokens` and `suffix_tokens` together: expected 1 to {}, got {}",
                            trace_.name(), common.line, kTokensMax, input_tokens);
  }
  std::string prefix(name_space);
  prefix += '\0';
  prefix += prefix_id;
  const std::uint64_t number = prefixes_.try_emplace(std::move(prefix), prefixes_.size()).first->second;
  if (number >= std::uint64_t{1} << 31) return resource_exhausted("{}: too many different prefixes", trace_.name());
  const std::int64_t shared = prefix_tokens / options_.block_tokens;
  const std::int64_t blocks = (input_tokens + options_.block_tokens - 1) / options_.block_tokens;
  keys_.clear();
  for (std::int64_t i = 0; i < blocks; ++i) {
    keys_.push_back(i < shared ? number << 32 | static_cast<std::uint64_t>(i) : kLone | lone_blocks_++);
  }
  return add(common, input_tokens, keys_);
}

Result<Trace> TraceAssembler::finish() && {
  if (trace_.requests().empty()) return invalid_argument("{}: no request in it", trace_.name());
  if (options_.sort) trace_.sort_by_arrival();
  trace_.shrink();
  return std::move(trace_);
}

}  // namespace nmc::sim
