#include "lab/load_trace.h"

#include <algorithm>

#include "sim/trace_reader.h"

namespace nmc::lab {
namespace {

constexpr double kSecondsMax = 1e9;  // 30 years

}  // namespace

std::vector<Nanos> LoadTrace::arrivals() const {
  std::vector<Nanos> times;
  for (const TracedRequest& request : requests) times.push_back(request.at);
  return times;
}

Result<LoadTrace> load_trace_of(const sim::Trace& trace, double time_scale) {
  LoadTrace load{.block_tokens = trace.block_tokens(), .digest = sim::digest_of(trace).hex(), .time_scale = time_scale};
  const std::int64_t first_us = trace.requests().empty() ? 0 : trace.requests().front().arrival_us;
  for (const sim::TraceRequest& request : trace.requests()) {
    const double at_s = static_cast<double>(request.arrival_us - first_us) * 1e-6 * time_scale;
    if (!(at_s <= kSecondsMax))
      return invalid_argument("{}:{}: {:g} s after the first request, expected at most {:g}", trace.name(),
                              request.line, at_s, kSecondsMax);
    TracedRequest& made = load.requests.emplace_back();
    made.at = Nanos(static_cast<std::int64_t>(at_s * 1e9));
    made.input_tokens = request.input_tokens;
    made.output_tokens = std::max<std::size_t>(1, request.output_tokens);
    for (const std::uint32_t block : trace.blocks_of(request)) made.block_hashes.push_back(trace.key_of(block));
  }
  return load;
}

Result<LoadTrace> read_load_trace(const Path& file, double time_scale, std::uint32_t block_tokens) {
  NMC_ASSIGN_OR_RETURN(const sim::Trace trace, sim::read_trace(file, {.block_tokens = block_tokens, .sort = true}));
  return load_trace_of(trace, time_scale);
}

}  // namespace nmc::lab
