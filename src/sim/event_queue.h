// What happens next, in simulated time. Of what happens at one time, what was scheduled first comes first, so that a
// run is the same each time.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/check.h"

namespace nmc::sim {

using SimNanos = std::int64_t;  // since the run's begin

inline SimNanos sim_nanos(double seconds) { return static_cast<SimNanos>(seconds * 1e9 + 0.5); }
inline double sim_seconds(SimNanos nanos) { return static_cast<double>(nanos) * 1e-9; }

// Not thread-safe.
class EventQueue {
 public:
  using Action = std::function<void()>;

  SimNanos now() const { return now_; }
  void at(SimNanos time, Action action) {
    NMC_REQUIRE(time >= now_, "time={} now={}", time, now_);
    events_.push({time, scheduled_++, std::move(action)});
  }
  void after(SimNanos delay, Action action) { at(now_ + delay, std::move(action)); }

  // Until nothing is scheduled any more.
  void run() {
    while (!events_.empty()) {
      // Moved out before it runs: it may schedule others.
      Action action = std::move(const_cast<Event&>(events_.top()).action);
      now_ = events_.top().time;
      events_.pop();
      action();
    }
  }

 private:
  struct Event {
    SimNanos time;
    std::uint64_t order;
    Action action;
    bool operator<(const Event& other) const {  // the top of a priority_queue is the largest
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  SimNanos now_ = 0;
  std::uint64_t scheduled_ = 0;
};

}  // namespace nmc::sim
