#include "net/client_wire.h"

#include <algorithm>

namespace nmc::net {

Wait::Wait(const Patience& patience) : started_(real_clock().now()) {
  constexpr Nanos kLongest = std::chrono::hours(24 * 365);  // sums with it don't overflow
  whole_ = std::min(patience.progress, kLongest);
  if (patience.until != Nanos::max()) whole_ = std::min(whole_, patience.until - started_);
  left_ = whole_;
}

Failure Wait::failure() const { return deadline_exceeded("no byte moved for {:.0f} ms", to_ms(whole_)); }

}  // namespace nmc::net
