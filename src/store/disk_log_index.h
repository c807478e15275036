// Where every object of the disk log lies, and how much of each file is dead. Memory only. Not thread-safe.
//
// Invariants:
// 1. Files are in log order: a key's entry in a file is newer than any in a file of lower number. So dropping the
// lowest
//    file can never bring an older version of a key back, and its tombstones are of no more use.
// 2. A slot points at the newest entry of its key; live_items of a file is the number of slots that point into it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "store/disk_log_file.h"

namespace nmc::store::disk {

struct Slot {
  std::uint32_t file = 0;
  bool read_recently = false;  // since it was last written
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0, bytes = 0, checksum = 0;

  bool same_place(const Slot& other) const { return file == other.file && offset == other.offset; }
};

struct FileUse {
  std::shared_ptr<LogFile> file;  // shared with readers in flight
  std::uint64_t dead_bytes = 0;   // at least; what compaction would win
  std::uint64_t live_items = 0;
  std::uint64_t tombstones = 0;
};

struct Move {
  Slot from;
  FileEntry to;
};

class DiskIndex {
 public:
  void add_file(std::shared_ptr<LogFile> file);
  // Forgets the file and what still lives in it; returns how many objects that were. Looks at every key unless none
  // live.
  std::uint64_t remove_file(std::uint32_t number);
  // Applies an entry of the file, in log order.
  void apply(std::uint32_t number, const Entry& entry);
  // Puts `output` (none: nothing lived) in the place of the run of files, the last of which has its number. Objects
  // that still lie where a move says they lay move; other moves are dead on arrival; objects of the run without a move
  // are gone.
  void replace_run(std::span<const std::shared_ptr<LogFile>> run, std::shared_ptr<LogFile> output,
                   std::span<const Move> moves, std::uint64_t tombstones);
  bool erase(std::string_view key);

  const Slot* find(std::string_view key) const;
  std::vector<std::string> keys() const;
  void note_read(std::string_view key);
  const std::map<std::uint32_t, FileUse>& files() const { return files_; }
  std::uint64_t objects() const { return slots_.size(); }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t file_bytes() const;  // sizes of all files
  // The file whose compaction wins most, among those with at most `live_bytes_max` to rewrite and at least an eighth
  // dead: below that, rewriting costs more than the space is worth.
  std::optional<std::uint32_t> best_to_compact(std::uint64_t live_bytes_max) const;
  // `number` and those neighbours, `excluded` not among them, that are small enough for all to become one file of at
  // most `bytes_max`. Ascending. Keeps the number of files low.
  std::vector<std::uint32_t> run_around(std::uint32_t number, std::uint64_t bytes_max, std::uint32_t excluded) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const { return checksum64(key); }
  };
  void bury(std::string_view key, const Slot& slot);

  std::map<std::uint32_t, FileUse> files_;
  std::unordered_map<std::string, Slot, Hash, std::equal_to<>> slots_;
  std::uint64_t live_bytes_ = 0;
};

}  // namespace nmc::store::disk
