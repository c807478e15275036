// A length over time as means of equal intervals, in bounded memory: when time outgrows the intervals, neighbours
// merge.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/event_queue.h"

namespace nmc::sim {

// Not thread-safe.
class QueueSeries {
 public:
  static constexpr std::size_t kIntervals = 120;

  // From `now` on the length is that. Time never goes back.
  void change(SimNanos now, std::uint64_t length);
  // As if it had ended at `now`.
  std::vector<double> means(SimNanos now) const;
  SimNanos interval() const { return interval_; }  // the last one may be shorter
  double mean(SimNanos now) const;                 // from 0 to `now`
  std::uint64_t max() const { return max_; }

 private:
  void add(SimNanos from, SimNanos to, std::uint64_t length);

  SimNanos interval_ = 1'000'000'000;
  std::vector<double> areas_;  // length x nanoseconds of each interval
  SimNanos changed_ = 0;
  std::uint64_t length_ = 0, max_ = 0;
};

}  // namespace nmc::sim
