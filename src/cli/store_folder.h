// The folder of a master's shared files: the one asked for, or one of this user's in memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace nmc::cli {

// Moves. The master makes what is in the folder; this only says where it is, and clears away what nobody else would.
class StoreFolder {
 public:
  // `given`, if there is one. Else a folder named after `port` below /dev/shm, or below the system's temporary folder
  // where that can't be written. Port 0: no later master would look for it, so it ends with this object, and those that
  // a killed master left are removed now.
  static Result<StoreFolder> choose(const std::optional<Path>& given, std::uint16_t port);
  StoreFolder(StoreFolder&& other) noexcept;
  ~StoreFolder();  // after the master's

  const Path& path() const { return path_; }

 private:
  StoreFolder(Path path, Path root, bool ends) : path_(std::move(path)), root_(std::move(root)), ends_(ends) {}
  Path path_;
  Path root_;          // of this user's folders; empty: the folder was given
  bool ends_ = false;  // with us
};

// Folders for port 0 that process `pid` of this user chose, that are still there and that no master holds.
std::vector<Path> abandoned_store_folders_of(pid_t pid);

}  // namespace nmc::cli
