// Internal to net: looking for what comes next before sleeping until it comes.
//
// An idle core takes some 30 us to wake up, longer than a small request and its reply need altogether. So who waits for
// a message looks for it himself for a short while, if that was of use lately: where the other side is as quick (or has
// a core to be quick on at all), both stay awake for as long as messages go back and forth, and not longer.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace nmc::net {

// Belongs to one waiter. After looks in vain it sleeps at once for 1, 3, 7 ... at most kRestMax waits, then tries
// again.
class Spin {
 public:
  static constexpr Nanos kLongest = std::chrono::microseconds(50);
  static constexpr std::uint32_t kRestMax = 63;

  // Where there is no other core, whoever is waited for couldn't come while this looks.
  Spin() : Spin(cores() > 1 ? kLongest : Nanos::zero()) {}
  explicit Spin(Nanos longest) : longest_(longest) {}

  // Calls look() until it returns true, which this then does, or for long enough; or not at all.
  template <class Look>
  bool catches(Look&& look) {
    if (longest_ == Nanos::zero()) return false;
    if (rests_ > 0) {
      --rests_;
      return false;
    }
    const Nanos until = real_clock().now() + longest_;
    do {
      if (look()) {
        rest_next_ = 0;
        return true;
      }
    } while (real_clock().now() < until);
    rests_ = rest_next_ = std::min(2 * rest_next_ + 1, kRestMax);
    return false;
  }

 private:
  static int cores() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }

  Nanos longest_;
  std::uint32_t rests_ = 0;      // waits still to sleep through
  std::uint32_t rest_next_ = 0;  // how many it was after the last look in vain
};

}  // namespace nmc::net
