// The disk tier: an append-only log of objects in a folder of its own. Single process per folder (locked); a crashed
// one's folder is replayed. Format: docs/formats.md, "disk log".
//
// Promise: an object at or below flush_mark() survives the death of the process at any instant, byte for byte; power
// loss loses at most what the fsync policy allows. A damaged record is found by its checksums, moved to quarantine with
// its reason (capped), and hides nothing but itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"

namespace nmc::store {

enum class FsyncPolicy {
  kNever,     // the kernel decides; process death loses nothing that was written
  kOnSeal,    // when a file is full
  kInterval,  // at most fsync_interval after a write
  kEachAppend,
};

inline constexpr std::uint64_t kDiskBytesMin = std::uint64_t{64} << 10;

struct DiskLogOptions {
  Path folder;
  // All files together, compaction headroom (one file) and quarantine included; at least kDiskBytesMin.
  std::uint64_t bytes_max = std::uint64_t{8} << 30;
  std::uint64_t file_bytes = std::uint64_t{64} << 20;            // at most an eighth of bytes_max is used
  std::uint64_t quarantine_bytes_max = std::uint64_t{64} << 20;  // at most a sixteenth of bytes_max is used
  FsyncPolicy fsync = FsyncPolicy::kOnSeal;
  Nanos fsync_interval = std::chrono::seconds(1);
  const Clock* clock = &real_clock();
};

// One object of an append; several in one append become one record with a table (a run of chain blocks).
struct DiskItem {
  std::string_view key;  // 1..kKeyBytesMax bytes
  std::span<const std::byte> payload;
};

struct DiskLogStats {
  std::uint64_t objects = 0, live_bytes = 0, used_bytes = 0, bytes_max = 0, files = 0;
  std::uint64_t appended_bytes = 0, read_bytes = 0, compacted_bytes = 0,
                dropped_objects = 0;  // dropped: to stay in the cap
  std::uint64_t quarantined_entries = 0, quarantined_bytes = 0, errors = 0;
  std::uint64_t replayed_records = 0;           // read one by one at open, for want of a footer
  std::uint64_t syncs = 0;                      // fsync calls on log files
  std::vector<std::string> quarantine_reasons;  // the last few
};

// Thread-safe; reads run beside one append at a time.
class DiskLog {
 public:
  // Replays what is there. kAlreadyExists: another live process has the folder; kVersionMismatch: another format
  // version.
  static Result<std::unique_ptr<DiskLog>> open(DiskLogOptions options);
  ~DiskLog();

  // Appends the items as one record; a key that is there already is superseded. Returns the record's sequence number
  // once it is written (flush_mark() >= it). A full disk or an I/O error is an Error and leaves the log as it was;
  // nothing is half written. Space inside the cap is made by compaction and then by dropping the oldest objects; of
  // those, the ones that were read since they were written get a second chance. kInvalidArgument: larger than
  // record_bytes_max().
  Result<std::uint64_t> append(std::span<const DiskItem> items);
  // Tombstone; after it (and after a restart) the key is gone. False when it wasn't there. After an Error it is gone
  // too, but a restart may bring it back.
  Result<bool> remove(std::string_view key);
  // Largest record (payloads, keys and some 100 bytes an item) that append takes: about two fifths of bytes_max.
  std::uint64_t record_bytes_max() const;

  bool contains(std::string_view key) const;
  std::optional<std::uint64_t> size_of(std::string_view key) const;
  std::vector<std::string> keys() const;
  // Reads and verifies into `out` (exactly size_of(key) bytes). False: a miss, or damaged (then quarantined and
  // counted, and the key is gone). What `out` holds after false is undefined.
  bool read(std::string_view key, std::span<std::byte> out);

  std::uint64_t flush_mark() const;
  Result<void> sync();  // fsync of all that was appended
  DiskLogStats stats() const;

 private:
  struct Impl;
  explicit DiskLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nmc::store
