#include "engine/stage_teller.h"

namespace nmc::engine {

void StageTeller::tell(const std::string& request_id, const StagePlace& place, const char* stage, Nanos start,
                       Nanos end, bool is_last) const {
  if (!listener_) return;
  listener_({.request_id = request_id,
             .stage = stage,
             .process = place.process,
             .pid = place.pid,
             .start = start,
             .end = end,
             .is_last = is_last});
}

void StageTeller::tell_until(const std::string& request_id, const StagePlace& place, Nanos end,
                             std::initializer_list<Stage> stages) const {
  if (!listener_) return;
  Nanos start = end;
  for (const Stage& stage : stages) start -= nanos_of_ms(stage.ms);
  for (const Stage& stage : stages) {
    const Nanos duration = nanos_of_ms(stage.ms);
    if (duration > Nanos{0}) tell(request_id, place, stage.name, start, start + duration);
    start += duration;
  }
}

}  // namespace nmc::engine
