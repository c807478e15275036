#include "evidence/metrics.h"

#include <algorithm>
#include <cmath>

namespace nmc::evidence {
namespace {

constexpr Metric kMetrics[] = {
    {"ttft_ms", "ms", false},          {"e2e_ms", "ms", false},
    {"decode_ms", "ms", false},        {"queue_ms", "ms", false},
    {"lookup_ms", "ms", false},        {"restore_ms", "ms", false},
    {"prefill_ms", "ms", false},       {"export_ms", "ms", false},
    {"encode_ms", "ms", false},        {"transport_ms", "ms", false},
    {"unpack_ms", "ms", false},        {"import_ms", "ms", false},
    {"prompt_tokens", "tokens", true}, {"computed_tokens", "tokens", true},
    {"saved_tokens", "tokens", true},  {"output_tokens", "tokens", true},
    {"hit_blocks", "blocks", true},    {"snapshot_bytes", "bytes", true},
    {"transfer_bytes", "bytes", true}, {"preemptions", "count", true},
};

}  // namespace

std::span<const Metric> request_metrics() { return kMetrics; }

const Metric* find_request_metric(std::string_view name) {
  const auto* const found = std::ranges::find(kMetrics, name, &Metric::name);
  return found == std::end(kMetrics) ? nullptr : found;
}

bool is_time(std::string_view metric) {
  const Metric* const found = find_request_metric(metric);
  return found != nullptr && found->unit == "ms";
}

double rounded(double value) { return std::round(value * 1e6) / 1e6; }

}  // namespace nmc::evidence
