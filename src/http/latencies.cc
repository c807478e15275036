#include "http/latencies.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace nmc::http {
namespace {

enum Metric : std::size_t {
  kTtft,
  kItl,
  kE2e,
  kDecode,
  kQueue,
  kLookup,
  kRestore,
  kPrefill,
  kExport,
  kEncode,
  kTransport,
  kUnpack,
  kImport,
};

}  // namespace

const std::array<const char*, Latencies::kMetrics> Latencies::kNames = {
    "ttft_ms",    "itl_ms",    "e2e_ms",    "decode_ms",    "queue_ms",  "lookup_ms", "restore_ms",
    "prefill_ms", "export_ms", "encode_ms", "transport_ms", "unpack_ms", "import_ms",
};

void Latencies::Window::add(double value) {
  ++count_;
  sum_ += value;
  if (values_.size() < kWindow) {
    values_.push_back(value);
  } else {
    values_[next_] = value;
    next_ = (next_ + 1) % kWindow;
  }
}

Json Latencies::Window::json() const {
  std::vector<double> sorted = values_;
  std::ranges::sort(sorted);
  // The smallest sample that at least `share` of all don't exceed.
  const auto percentile = [&sorted](double share) -> Json {
    if (sorted.empty()) return "not_available";
    return sorted[static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size()))) - 1];
  };
  Json json;
  json["p50"] = percentile(0.50);
  json["p95"] = percentile(0.95);
  json["p99"] = percentile(0.99);
  json["samples"] = sorted.size();
  json["count"] = count_;
  json["sum"] = sum_;
  return json;
}

void Latencies::add_request(const engine::RequestMetrics& m) {
  MutexLock lock(mutex_);
  windows_[kTtft].add(m.ttft_ms);
  windows_[kE2e].add(m.e2e_ms);
  windows_[kDecode].add(m.decode_ms);
  windows_[kQueue].add(m.queue_ms);
  windows_[kLookup].add(m.lookup_ms);
  windows_[kRestore].add(m.restore_ms);
  windows_[kPrefill].add(m.prefill_ms);
  if (m.transfer_carrier == "none") return;
  windows_[kExport].add(m.export_ms);
  windows_[kEncode].add(m.encode_ms);
  windows_[kTransport].add(m.transport_ms);
  windows_[kUnpack].add(m.unpack_ms);
  windows_[kImport].add(m.import_ms);
}

void Latencies::add_token_gap(double ms) {
  MutexLock lock(mutex_);
  windows_[kItl].add(ms);
}

Json Latencies::json() const {
  std::array<Window, kMetrics> windows;
  {
    MutexLock lock(mutex_);
    windows = windows_;  // sort outside: tokens don't wait for a reader of metrics
  }
  Json json;
  for (std::size_t i = 0; i < kMetrics; ++i) json[kNames[i]] = windows[i].json();
  return json;
}

}  // namespace nmc::http
