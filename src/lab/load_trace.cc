#include "lab/load_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "lab/token_lengths.h"

namespace nmc::lab {
namespace {

constexpr double kTimestampMsMax = 1e12;  // 30 years

Result<TracedRequest> request_of(std::string_view line, double time_scale) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(line, "line"));
  const JsonFields fields(json);
  constexpr auto kMost = static_cast<std::int64_t>(TokenLengths::kTokensMax);
  NMC_ASSIGN_OR_RETURN(const double at_ms, fields.number("timestamp", 0, kTimestampMsMax));
  NMC_ASSIGN_OR_RETURN(const std::int64_t input, fields.integer("input_length", 0, kMost));
  NMC_ASSIGN_OR_RETURN(const std::int64_t output, fields.integer("output_length", 0, kMost));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> hashes, fields.integers("hash_ids"));
  const double at_ns = at_ms * time_scale * 1e6;
  if (at_ns > kTimestampMsMax * 1e6)
    return invalid_argument("`timestamp`: {} ms times {:g} is too far away", at_ms, time_scale);
  return TracedRequest{.at = Nanos(static_cast<std::int64_t>(at_ns)),
                       .input_tokens = static_cast<std::size_t>(input),
                       .output_tokens = static_cast<std::size_t>(std::max<std::int64_t>(1, output)),
                       .block_hashes = {hashes.begin(), hashes.end()}};
}

}  // namespace

std::vector<Nanos> LoadTrace::arrivals() const {
  std::vector<Nanos> times;
  for (const TracedRequest& request : requests) times.push_back(request.at);
  return times;
}

Result<LoadTrace> parse_load_trace(std::string_view lines, std::string_view name, double time_scale,
                                   std::size_t block_tokens) {
  LoadTrace trace{.block_tokens = block_tokens};
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    auto request = request_of(line, time_scale);
    if (!request) return Failure(std::move(request).error().with_context(where));
    if (request->input_tokens == 0) continue;
    const std::size_t blocks = (request->input_tokens + block_tokens - 1) / block_tokens;
#if !defined(NMC_PLANT_LOAD_TRACE)  // left out on purpose in a build that shows what fuzzing finds
    if (request->block_hashes.size() != blocks) {
      return corrupt("{}: {} hash_ids, expected {} for {} tokens in blocks of {}", where, request->block_hashes.size(),
                     blocks, request->input_tokens, block_tokens);
    }
#endif
    trace.requests.push_back(*std::move(request));
  }
  if (trace.requests.empty()) return invalid_argument("{}: no request in it, expected one JSON object a line", name);
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const TracedRequest& a, const TracedRequest& b) { return a.at < b.at; });
  const Nanos first = trace.requests.front().at;
  for (TracedRequest& request : trace.requests) request.at -= first;
  return trace;
}

Result<LoadTrace> read_load_trace(const Path& file, double time_scale, std::size_t block_tokens) {
  NMC_ASSIGN_OR_RETURN(const std::string lines, read_file(file));
  return parse_load_trace(lines, file.string(), time_scale, block_tokens);
}

}  // namespace nmc::lab
