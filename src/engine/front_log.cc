#include "engine/front_log.h"

#include <unistd.h>

namespace nmc::engine {
namespace {

StagePlace front() { return {"front", ::getpid()}; }
StagePlace beside(const StagePlace& worker) { return {worker.process + " hand-over", worker.pid}; }

}  // namespace

void FrontLog::never_admitted(const std::string& request_id, Nanos submitted) const {
  stages_.tell(request_id, front(), "queue", submitted, options_.clock->now(), true);
}

void FrontLog::left(const WorkerStay& stay) {
  if (stay.here == Nanos{0}) return;
  const Nanos now = options_.clock->now();
  if (stay.is_prefill) return tell_prefill(stay, now);
  tell_decode(stay, now);
  const RequestMetrics& metrics = stay.metrics;
  const bool has_arrived = metrics.import_ms + metrics.unpack_ms > 0;
  if (!has_arrived) return;
  handovers_.add({.request_id = stay.request_id,
                  .from = stay.producer,
                  .to = stay.worker.process,
                  .transfer = transfer_name(options_.transfer),
                  .bytes = metrics.snapshot_bytes,
                  .ms = handover_ms(metrics)});
}

void FrontLog::tell_prefill(const WorkerStay& stay, Nanos now) const {
  const RequestMetrics& metrics = stay.metrics;
  const Nanos looked = stay.here - nanos_of_ms(metrics.lookup_ms) - nanos_of_ms(metrics.restore_ms);
  if (stay.here == stay.admitted) {  // else it lost its first worker, and its wait has been told
    stages_.tell(stay.request_id, front(), "queue", stay.submitted, std::max(stay.submitted, looked), true);
  }
  stages_.tell_until(stay.request_id, stay.worker, stay.here,
                     {{"lookup", metrics.lookup_ms}, {"restore", metrics.restore_ms}});
  stages_.tell(stay.request_id, stay.worker, "prefill", stay.here, now, true);
  stages_.tell_until(stay.request_id, beside(stay.worker), now,
                     {{"export", metrics.export_ms}, {"encode", metrics.encode_ms}}, true);
}

void FrontLog::tell_decode(const WorkerStay& stay, Nanos now) const {
  const RequestMetrics& metrics = stay.metrics;
  stages_.tell_until(
      stay.request_id, beside(stay.worker), stay.here,
      {{"transport", metrics.transport_ms}, {"unpack", metrics.unpack_ms}, {"import", metrics.import_ms}}, true);
  stages_.tell(stay.request_id, stay.worker, "decode", stay.here, now, true);
}

}  // namespace nmc::engine
