#include "base/clock.h"

namespace nmc {
namespace {

class RealClock final : public Clock {
 public:
  Nanos now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  std::int64_t unix_seconds() const override {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

const Clock& real_clock() {
  static const RealClock clock;
  return clock;
}

}  // namespace nmc
