#include "store/disk_medium.h"

#include <vector>

#include "base/failpoint.h"

namespace nmc::store {

Result<std::unique_ptr<DiskMedium>> DiskMedium::open(DiskLogOptions options) {
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<DiskLog> log, DiskLog::open(std::move(options)));
  return std::unique_ptr<DiskMedium>(new DiskMedium(std::move(log)));
}

std::size_t DiskMedium::probe_run(std::span<const std::string> keys, std::uint64_t bytes) {
  std::size_t count = 0;
  while (count < keys.size() && log_->size_of(keys[count]) == bytes) ++count;
  return count;
}

std::size_t DiskMedium::read(std::span<const TierRead> reads, std::string* why) {
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (auto injected = failpoint("disk.read")) {
      injected_errors_.fetch_add(1, std::memory_order_relaxed);
      *why = injected->message;
      return i;
    }
    if (log_->read(reads[i].key, reads[i].out)) continue;
    *why = "the object on disk is damaged or went away";
    return i;
  }
  return reads.size();
}

Result<void> DiskMedium::append(std::span<const TierItem> items) {
  if (auto injected = failpoint("disk.append")) {
    injected_errors_.fetch_add(1, std::memory_order_relaxed);
    return Failure(*std::move(injected));
  }
  std::vector<DiskItem> record;
  record.reserve(items.size());
  for (const TierItem& item : items) record.push_back({item.key, item.payload});
  NMC_RETURN_IF_ERROR(log_->append(record));
  return {};
}

Result<void> DiskMedium::remove(std::string_view key) {
  NMC_RETURN_IF_ERROR(log_->remove(key));
  return {};
}

void DiskMedium::fill_stats(StoreStats& stats) const {
  const DiskLogStats log = log_->stats();
  stats.disk = true;
  stats.disk_objects = log.objects;
  stats.disk_used_bytes = log.used_bytes;
  stats.disk_cap_bytes = log.bytes_max;
  stats.disk_written_bytes = log.appended_bytes;
  stats.disk_read_bytes = log.read_bytes;
  stats.disk_errors = log.errors + injected_errors_.load(std::memory_order_relaxed);
  stats.quarantined_entries = log.quarantined_entries;
  stats.quarantined_bytes = log.quarantined_bytes;
}

}  // namespace nmc::store
