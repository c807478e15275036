// A peer that didn't answer is left alone for a while: who asked would wait for its deadline each time.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace nmc::store {

// Thread-safe. The clock outlives it.
class Silence {
 public:
  Silence(const Clock& clock, Nanos span) : clock_(clock), span_(span) {}
  void begin() { until_ns_.store((clock_.now() + span_).count(), std::memory_order_relaxed); }
  bool holds() const { return clock_.now().count() < until_ns_.load(std::memory_order_relaxed); }

 private:
  const Clock& clock_;
  const Nanos span_;
  std::atomic<std::int64_t> until_ns_{0};
};

}  // namespace nmc::store
