// What the front of worker processes (process_runtime.h) tells of its requests: their stages, and the hand-overs.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/handover_log.h"
#include "engine/request.h"
#include "engine/runtime.h"
#include "engine/stage_teller.h"

namespace nmc::engine {

// A request's time at one worker, when it is over.
struct WorkerStay {
  const std::string& request_id;
  const RequestMetrics& metrics;  // of all its workers so far; zero where one died before it could tell
  bool is_prefill = false;
  StagePlace worker;
  std::string producer;  // who computed its KV
  Nanos submitted{0};
  Nanos admitted{0};  // at its first worker
  Nanos here{0};      // at this one; 0: never
};

// Moments are the front's own, at which it heard of them; what workers do beside computing (KV that goes out or comes
// in) stands in groups of its own, "prefill-0 hand-over". Thread-safe.
class FrontLog {
 public:
  explicit FrontLog(const RuntimeOptions& options) : options_(options), stages_(options.on_stage) {}  // borrowed

  void left(const WorkerStay& stay);
  void never_admitted(const std::string& request_id, Nanos submitted) const;

  std::vector<HandoverRecord> handovers() const { return handovers_.newest_first(); }

 private:
  void tell_prefill(const WorkerStay& stay, Nanos now) const;
  void tell_decode(const WorkerStay& stay, Nanos now) const;

  const RuntimeOptions& options_;
  const StageTeller stages_;
  HandoverLog handovers_;
};

}  // namespace nmc::engine
