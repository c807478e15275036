// Where the files lie that a store shares with its clients: index, pin tables, segments.
//
// Named files of a folder (tmpfs, as a rule) outlive the processes that map them, so that the next master finds them;
// memfds are gone with their last holder. Either way a file is made with its full address space and no memory; memory
// is reserved piece by piece before anybody touches it, so that a full machine is an error there and never a bus error
// later.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"

namespace nmc::store {

// Reserves memory for `bytes` of `fd` from `offset` on; what is reserved already stays as it is. `name` is for
// messages. kResourceExhausted says how much was wanted and how much is free.
Result<void> reserve_memory(int fd, std::uint64_t offset, std::uint64_t bytes, std::string_view name);
// The same for what was reserved once, by whoever made the file: asks for nothing unless some of it was lost.
Result<void> keep_memory(int fd, std::uint64_t offset, std::uint64_t bytes, std::string_view name);

// Thread-safe, but for moving it.
class SharedFiles {
 public:
  static SharedFiles in_memory() { return SharedFiles(UniqueFd(), {}); }
  // `folder` is made where it is missing, for this user only. kPermissionDenied: it is there and others may write to
  // it, or it is somebody else's.
  static Result<SharedFiles> in_folder(const Path& folder);

  bool outlive_us() const { return static_cast<bool>(folder_); }
  const Path& folder() const { return path_; }  // empty: memfds

  // A new file of zeros, `bytes` long and without memory; replaces one of that name. With a folder, `name` is relative
  // to it.
  Result<UniqueFd> create(const std::string& name, std::uint64_t bytes);
  // An existing one, for reading and writing. kNotFound: there is none (there never is one without a folder).
  Result<UniqueFd> open(const std::string& name);
  // Its name is gone; who has it open or mapped keeps it.
  void remove(const std::string& name);
  std::vector<std::string> names() const;

 private:
  SharedFiles(UniqueFd folder, Path path) : folder_(std::move(folder)), path_(std::move(path)) {}
  UniqueFd folder_;
  Path path_;
};

}  // namespace nmc::store
