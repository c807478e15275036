#include "net/wire.h"

#include <algorithm>

namespace nmc::net {

Wait::Wait(const Patience& patience) : started_(real_clock().now()) {
  const Nanos progress = std::min<Nanos>(patience.progress, std::chrono::hours(24 * 365));
  end_ = std::min(started_ + progress, patience.until);
}

Failure Wait::over() const { return deadline_exceeded("no byte moved for {:.0f} ms", to_ms(end_ - started_)); }

}  // namespace nmc::net
