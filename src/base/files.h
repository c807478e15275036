// Whole files: read, write atomically, map. Messages name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc {

using Path = std::filesystem::path;

// The whole regular file as bytes. Refuses more than `limit` bytes (kInvalidArgument), so that a wrong path can't fill
// memory.
Result<std::string> read_file(const Path& path, std::uint64_t limit = std::uint64_t{1} << 30);

// Writes a temporary file beside `path`, syncs it, renames it over `path`, syncs the folder; makes parent folders.
// Follows a link to its target; refuses what exists and is no regular file. On failure `path` is as it was and no
// temporary file is left. Of several writers at once, one content wins whole.
Result<void> write_file_atomic(const Path& path, std::string_view content);

// The whole regular file mapped read-only. Reading a page that another process cut off meanwhile is SIGBUS.
Result<Mapping> map_file(const Path& path);

Result<std::uint64_t> file_size(const Path& path);

// A fresh folder under the system's temporary folder, removed with all it holds when the object goes. For tests and
// runtime folders.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create(std::string_view prefix = "nmc");
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TemporaryFolder();

  const Path& path() const { return path_; }

 private:
  explicit TemporaryFolder(Path path) : path_(std::move(path)) {}
  Path path_;
};

}  // namespace nmc
