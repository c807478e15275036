// The last hand-overs of a runtime, for whoever looks at it.
#pragma once

#include <deque>
#include <vector>

#include "base/mutex.h"
#include "engine/runtime.h"

namespace nmc::engine {

// Keeps kHandoverRecordsMax. Thread-safe.
class HandoverLog {
 public:
  void add(HandoverRecord record);
  std::vector<HandoverRecord> newest_first() const;

 private:
  mutable Mutex mutex_;
  std::deque<HandoverRecord> records_ NMC_GUARDED_BY(mutex_);  // newest first
};

// What the five stages of a request's hand-over took together.
double handover_ms(const RequestMetrics& metrics);

}  // namespace nmc::engine
