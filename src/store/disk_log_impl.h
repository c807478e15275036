// Inside of DiskLog: one writer at a time over the log files, an index that readers share, and the making of room.
// disk_log.cc has opening, appending and reading; disk_log_room.cc compaction and dropping.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "store/disk_log.h"
#include "store/disk_log_file.h"
#include "store/disk_log_folder.h"
#include "store/disk_log_index.h"

namespace nmc::store {

struct DiskLog::Impl {
  class Compaction;

  Impl(DiskLogOptions clamped, disk::LogFolder locked_folder);
  ~Impl();

  Result<void> load();

  // ---- the public operations
  Result<std::uint64_t> append(std::span<const DiskItem> items) NMC_EXCLUDES(write_mutex);
  Result<bool> remove(std::string_view key) NMC_EXCLUDES(write_mutex);
  bool read(std::string_view key, std::span<std::byte> out) NMC_EXCLUDES(write_mutex);
  Result<void> sync() NMC_EXCLUDES(write_mutex);

  // ---- opening
  Result<void> load_file(std::uint32_t number, bool last) NMC_REQUIRES(write_mutex);
  Result<void> mend_locked(disk::LogFile& file, const disk::FileContents& contents) NMC_REQUIRES(write_mutex);

  // ---- writing
  disk::SyncData sync_data() const;
  // A file to which `bytes` can be appended: the active one, or a new one after sealing it.
  Result<void> ready_active_locked(std::uint64_t bytes) NMC_REQUIRES(write_mutex);
  void seal_active_locked() NMC_REQUIRES(write_mutex);
  Result<void> start_file_locked() NMC_REQUIRES(write_mutex);
  Result<std::uint64_t> append_locked(std::span<const DiskItem> items) NMC_REQUIRES(write_mutex);
  Result<void> append_tombstone_locked(std::string_view key) NMC_REQUIRES(write_mutex);
  std::uint64_t published_locked(const std::vector<disk::Entry>& entries) NMC_REQUIRES(write_mutex);
  Result<void> sync_file_locked(disk::LogFile& file) NMC_REQUIRES(write_mutex);
  Result<void> sync_folder();
  void sync_at_intervals() NMC_EXCLUDES(write_mutex);

  // ---- room
  std::uint64_t used_locked() NMC_REQUIRES(write_mutex);
  Result<void> make_room_locked(std::uint64_t bytes) NMC_REQUIRES(write_mutex);
  // Rewrites what lives in one best file and its small neighbours. False when nothing was won.
  bool compact_locked() NMC_REQUIRES(write_mutex);
  Result<void> drop_oldest_locked() NMC_REQUIRES(write_mutex);
  // Appends anew what was read lately in the file, up to `bytes_max` of payload.
  void carry_forward_locked(const std::shared_ptr<disk::LogFile>& file, const disk::FileContents& contents,
                            std::uint64_t bytes_max) NMC_REQUIRES(write_mutex);

  // ---- damage
  void quarantine_range(const disk::LogFile& file, const disk::Damage& damage);
  // The object at `slot` of `file` failed its checksum: quarantined and gone, unless it moved meanwhile.
  void quarantine_object(std::string_view key, const disk::Slot& slot, const std::shared_ptr<disk::LogFile>& file,
                         std::string reason) NMC_EXCLUDES(write_mutex);
  // Reads and checks a payload.
  Result<void> read_object(const disk::LogFile& file, const disk::Entry& entry, std::span<std::byte> out);
  void count_error(std::string_view what, const Error& error);

  std::optional<disk::Slot> find(std::string_view key) const NMC_EXCLUDES(index_mutex);

  const DiskLogOptions options;
  const std::uint64_t data_bytes_max;  // files with their footers; the rest of bytes_max is headroom and quarantine
  const disk::LogFolder folder;

  Mutex write_mutex;  // taken before index_mutex
  std::shared_ptr<disk::LogFile> active NMC_GUARDED_BY(write_mutex);
  std::uint64_t next_sequence NMC_GUARDED_BY(write_mutex) = 1;
  std::optional<Nanos> unsynced_since NMC_GUARDED_BY(write_mutex);  // kInterval only
  bool closing NMC_GUARDED_BY(write_mutex) = false;
  CondVar interval_wakeup;
  std::thread interval_thread;  // kInterval only

  mutable Mutex index_mutex;  // held briefly, never during I/O
  disk::DiskIndex index NMC_GUARDED_BY(index_mutex);

  mutable Mutex quarantine_mutex;  // a leaf
  disk::Quarantine quarantine NMC_GUARDED_BY(quarantine_mutex);

  std::atomic<std::uint64_t> flush_mark{0};  // release, pairs with the acquire of DiskLog::flush_mark
  struct Counters {                          // relaxed
    std::atomic<std::uint64_t> appended_bytes{0}, read_bytes{0}, compacted_bytes{0}, dropped_objects{0};
    std::atomic<std::uint64_t> errors{0}, replayed_records{0}, syncs{0};
  } counters;
};

}  // namespace nmc::store
