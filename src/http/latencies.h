// Percentiles of what recent requests took, by the metrics' names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "engine/request.h"

namespace nmc::http {

// Exact percentiles over the last kWindow samples of each metric. Thread-safe.
class Latencies {
 public:
  static constexpr std::size_t kWindow = 4096;

  // A request that was answered in full.
  void add_request(const engine::RequestMetrics& metrics);
  // Between two of its tokens.
  void add_token_gap(double ms);

  // {"ttft_ms": {"p50", "p95", "p99", "samples", "count", "sum"}, ...}; a metric without samples has "not_available"
  // for its percentiles. `samples` are those in the window; `count` and `sum` are of all since start, so that whoever
  // looks twice knows the mean of what came between.
  Json json() const;

 private:
  class Window {
   public:
    void add(double value);
    Json json() const;

   private:
    std::vector<double> values_;
    std::size_t next_ = 0;  // to be overwritten once full
    std::uint64_t count_ = 0;
    double sum_ = 0;
  };

  static constexpr std::size_t kMetrics = 13;
  static const std::array<const char*, kMetrics> kNames;

  mutable Mutex mutex_;
  std::array<Window, kMetrics> windows_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::http
