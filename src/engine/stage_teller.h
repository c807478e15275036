// How a runtime tells RuntimeOptions::on_stage what it measured.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "base/clock.h"
#include "engine/stage_span.h"

namespace nmc::engine {

// Where a stage took place.
struct StagePlace {
  std::string process;  // StageSpan's
  std::int64_t pid = 0;
};

// What is measured as a duration gets its place in time from the moment at which it began or ended. Thread-safe where
// the listener is. Without a listener every call does nothing.
class StageTeller {
 public:
  using Listener = std::function<void(const StageSpan&)>;
  struct Stage {
    const char* name;
    double ms;
  };

  explicit StageTeller(Listener listener) : listener_(std::move(listener)) {}

  void tell(const std::string& request_id, const StagePlace& place, const char* stage, Nanos start, Nanos end,
            bool is_last = false) const;
  // Stages one after another, the last of which ended at `end`. Those that took no time are left out. `are_last`: of
  // this request there.
  void tell_until(const std::string& request_id, const StagePlace& place, Nanos end,
                  std::initializer_list<Stage> stages, bool are_last = false) const;

 private:
  const Listener listener_;
};

// Of a duration that was measured in ms.
inline Nanos nanos_of_ms(double ms) {
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace nmc::engine
