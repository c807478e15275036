// The folder of a disk log: who has it, what version it is, which log files it holds, and its quarantine.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"
#include "store/disk_log_scan.h"

namespace nmc::store::disk {

// Holds the folder's lock while it lives. One a process and folder: a second open is refused in the same process too.
class LogFolder {
 public:
  // Makes the folder if need be, locks it, checks or writes FORMAT, and removes temporary files of a crashed process.
  // kAlreadyExists: a live process has it; kVersionMismatch: FORMAT is of another version; kCorrupt: FORMAT is damaged
  // or missing beside log files.
  static Result<LogFolder> open(const Path& path);

  const Path& path() const { return path_; }
  std::uint64_t salt() const { return salt_; }
  // Numbers of the log files there, ascending.
  Result<std::vector<std::uint32_t>> list() const;
  Path file_path(std::uint32_t number) const;
  Path temporary_path() const;  // for a file that is renamed into place when it is complete
  Path quarantine_path() const { return path_ / "quarantine"; }
  // Makes created, renamed and removed files durable.
  Result<void> sync() const;

 private:
  LogFolder(Path path, UniqueFd lock, std::uint64_t salt)
      : path_(std::move(path)), lock_(std::move(lock)), salt_(salt) {}
  Path path_;
  UniqueFd lock_;
  std::uint64_t salt_;
};

// Copies of damaged ranges for people to look at, oldest first out when the cap is reached. Never read by the store.
// Not thread-safe.
class Quarantine {
 public:
  Quarantine(Path folder, std::uint64_t bytes_max);

  // Keeps as much of the range as the cap allows, and counts it whole. Failing to write the copy is logged only.
  void add(const ByteSource& source, const std::string& file_name, const Damage& damage);

  std::uint64_t entries() const { return entries_; }              // since creation
  std::uint64_t damaged_bytes() const { return damaged_bytes_; }  // since creation, whether copied or not
  std::uint64_t used_bytes() const { return used_bytes_; }        // in the folder now
  std::vector<std::string> reasons() const { return {reasons_.begin(), reasons_.end()}; }  // the last few

 private:
  Result<void> copy(const ByteSource& source, const std::string& text, const Damage& damage);
  void make_room(std::uint64_t bytes);

  Path folder_;
  std::uint64_t bytes_max_;
  std::map<std::uint64_t, std::uint64_t> files_;  // number of a copy -> its size
  std::uint64_t next_ = 0, used_bytes_ = 0;
  std::uint64_t entries_ = 0, damaged_bytes_ = 0;
  std::deque<std::string> reasons_;
};

}  // namespace nmc::store::disk
