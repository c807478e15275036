#include "engine/process_runtime.h"
#include "engine/process_runtime_state.h"

namespace nmc::engine {

RuntimeStatus ProcessRuntime::status() const {
  RuntimeStatus status{.max_queue = options_.max_queue, .max_running = options_.max_running};
  const std::uint64_t held_here = store_.held();
  MutexLock lock(mutex_);
  status.queued = queued_;
  status.running = live_.size() - queued_;
  status.counters = counters_;
  std::uint64_t held = held_here, sequences = 0;
  for (const auto& worker : workers_) {
    const WorkerFigures& figures = worker->figures;
    WorkerStatus one{.name = worker->link->worker().name, .role = worker->link->worker().role};
    one.pid = worker->up ? worker->hello.pid : 0;
    one.state = worker->up ? (draining_ ? "draining" : "ready") : worker->was_up ? "lost" : "starting";
    one.restarts = worker->ups > 0 ? worker->ups - 1 : 0;
    one.queued = figures.queued;
    one.running = figures.running;
    one.utilization =
        figures.wall_ns > 0 ? static_cast<double>(figures.busy_ns) / static_cast<double>(figures.wall_ns) : 0;
    status.workers.push_back(std::move(one));
    status.counters.steps += figures.steps;
    status.counters.preemptions += figures.preemptions;
    held += figures.blocks_held + figures.exports + figures.imports;
    sequences += figures.queued + figures.running;
  }
  status.handovers = log_.handovers();
  if (live_.empty()) {
    status.counters.leaked_handles = held;
    status.counters.residual_slots = sequences;
  }
  return status;
}

}  // namespace nmc::engine
