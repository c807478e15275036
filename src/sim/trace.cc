#include "sim/trace.h"

#include <algorithm>
#include <limits>

namespace nmc::sim {

Result<void> Trace::add(TraceRequest request, std::span<const std::uint64_t> keys) {
  if (table_.size() + keys.size() >= std::numeric_limits<std::uint32_t>::max()) {
    return resource_exhausted("{}: more than {} different blocks", name_,
                              std::numeric_limits<std::uint32_t>::max() - 1);
  }
  request.first_block = blocks_.size();
  request.block_count = static_cast<std::uint32_t>(keys.size());
  for (const std::uint64_t key : keys) table_.prefetch(key);
  for (const std::uint64_t key : keys) blocks_.push_back(table_.number_of(key));
  input_tokens_total_ += request.input_tokens;
  output_tokens_total_ += request.output_tokens;
  requests_.push_back(request);
  return {};
}

void Trace::sort_by_arrival() {
  std::stable_sort(requests_.begin(), requests_.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_us < b.arrival_us; });
}

Digest digest_of(const Trace& trace) {
  Sha256 hash;
  hash.update_field(std::to_string(trace.block_tokens()));
  std::vector<std::uint64_t> words;  // of one request
  for (const TraceRequest& request : trace.requests()) {
    words = {static_cast<std::uint64_t>(request.arrival_us), request.input_tokens, request.output_tokens,
             static_cast<std::uint64_t>(request.session), request.block_count};
    for (const std::uint32_t block : trace.blocks_of(request)) words.push_back(trace.key_of(block));
    hash.update(std::as_bytes(std::span(words)));
  }
  return hash.finish();
}

}  // namespace nmc::sim
