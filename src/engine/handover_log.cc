#include "engine/handover_log.h"

namespace nmc::engine {

void HandoverLog::add(HandoverRecord record) {
  MutexLock lock(mutex_);
  records_.push_front(std::move(record));
  if (records_.size() > kHandoverRecordsMax) records_.pop_back();
}

std::vector<HandoverRecord> HandoverLog::newest_first() const {
  MutexLock lock(mutex_);
  return {records_.begin(), records_.end()};
}

double handover_ms(const RequestMetrics& metrics) {
  return metrics.export_ms + metrics.encode_ms + metrics.transport_ms + metrics.unpack_ms + metrics.import_ms;
}

}  // namespace nmc::engine
