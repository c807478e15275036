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
                             std::initializer_list<Stage> stages, bool are_last) const {
  if (!listener_) return;
  Nanos start = end;
  const char* last = nullptr;
  for (const Stage& stage : stages) {
    start -= nanos_of_ms(stage.ms);
    if (nanos_of_ms(stage.ms) > Nanos{0}) last = stage.name;
  }
  for (const Stage& stage : stages) {
    const Nanos duration = nanos_of_ms(stage.ms);
    if (duration > Nanos{0})
      tell(request_id, place, stage.name, start, start + duration, are_last && stage.name == last);
    start += duration;
  }
}

}  // namespace nmc::engine
