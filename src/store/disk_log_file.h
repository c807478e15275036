// One file of the disk log: appends records, publishes the flush mark, seals with a footer, and reads.
// Reading (read, size) is safe beside anything; all else belongs to one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"
#include "store/disk_format.h"
#include "store/disk_log.h"
#include "store/disk_log_scan.h"

namespace nmc::store::disk {

enum class SyncData { kNo, kYes };

class LogFile final : public ByteSource {
 public:
  // A new file with its head written. An existing `path` is an error.
  static Result<std::unique_ptr<LogFile>> create(const Path& path, std::uint32_t number, std::uint64_t salt);
  static Result<std::unique_ptr<LogFile>> open(const Path& path, std::uint32_t number, std::uint64_t salt);

  std::uint32_t number() const { return number_; }
  std::string name() const { return path_.filename().string(); }
  std::uint64_t size() const override { return size_.load(std::memory_order_relaxed); }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override;
  Result<FileContents> contents() const { return read_contents(*this, number_, salt_); }

  // ---- appending; the file is open for it after create() or reopen(), until seal().
  bool appendable() const { return appendable_; }
  bool empty() const { return data_end_ == kFileHeadBytes; }
  std::uint64_t data_end() const { return data_end_; }
  // Size after a seal() now, and how much an append of this shape adds to it.
  std::uint64_t sealed_bytes() const;
  static std::uint64_t added_bytes(std::span<const DiskItem> items);
  // Writes the record, syncs it if asked, and publishes the flush mark; on an error the file is as it was. The entries'
  // keys view those of `items`; their offsets count from the start of the file.
  Result<std::vector<Entry>> append(std::uint64_t sequence, std::span<const DiskItem> items, SyncData sync);
  Result<std::vector<Entry>> append_tombstones(std::uint64_t sequence, std::span<const std::string_view> keys,
                                               SyncData sync);
  // Writes footer and trailer. On an error the file stays without them, which costs the next start a scan.
  Result<void> seal();
  // Writes the head anew and cuts off what follows the contents' data_end (footer, torn tail); then the file can be
  // appended to, or sealed again.
  Result<void> reopen(const FileContents& contents);

  Result<void> sync();  // if anything was written since the last
  Result<void> rename(const Path& to);
  Result<void> remove();  // readers that hold the file go on reading

 private:
  LogFile(Path path, UniqueFd fd, std::uint32_t number, std::uint64_t salt, std::uint64_t size);
  Result<std::vector<Entry>> append_record(RecordHeader header, std::vector<std::byte> table,
                                           std::vector<Entry> entries, std::span<const DiskItem> items, SyncData sync);
  Result<void> write_record(std::span<const std::byte> head, std::span<const DiskItem> items, std::size_t padding);
  Result<void> write(std::uint64_t offset, std::span<const std::byte> bytes);
  Result<void> truncate(std::uint64_t size);
  Result<void> write_head();
  Result<void> publish_mark(std::uint64_t sequence);

  Path path_;
  UniqueFd fd_;
  std::uint32_t number_;
  std::uint64_t salt_;
  std::atomic<std::uint64_t> size_;
  bool appendable_ = false;
  bool unsynced_ = false;
  std::uint64_t data_end_ = kFileHeadBytes;
  std::uint64_t last_sequence_ = 0;
  unsigned next_mark_slot_ = 0;
  std::vector<std::byte> footer_table_;
  std::uint32_t footer_entries_ = 0;
};

}  // namespace nmc::store::disk
