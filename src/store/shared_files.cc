#include "store/shared_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/memory.h"

namespace nmc::store {
namespace {

std::uint64_t free_bytes_for(int fd) {
  struct statvfs info {};
  const std::uint64_t memory = available_memory();
  if (::fstatvfs(fd, &info) != 0 || info.f_blocks == 0) return memory;  // memfds have no limit of their own
  return std::min<std::uint64_t>(memory, std::uint64_t{info.f_bavail} * info.f_frsize);
}

Result<UniqueFd> sized(UniqueFd fd, const std::string& name, std::uint64_t bytes) {
  if (!fd) return Failure(os_error("create", name));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return Failure(os_error("size", name));
  return fd;
}

}  // namespace

Result<void> reserve_memory(int fd, std::uint64_t offset, std::uint64_t bytes, std::string_view name) {
  if (bytes == 0) return {};
  // A tmpfs without limit would hand out pages until the kernel has to kill somebody, so a size beyond all reason is
  // refused beforehand.
  const std::uint64_t available = available_memory();
  if (bytes > available)
    return resource_exhausted("memory for {}: {} bytes wanted, {} available", name, bytes, available);
  return keep_memory(fd, offset, bytes, name);
}

Result<void> keep_memory(int fd, std::uint64_t offset, std::uint64_t bytes, std::string_view name) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error == 0) return {};
  if (error == ENOSPC || error == ENOMEM) {
    return resource_exhausted("memory for {}: {} bytes wanted, {} free in its folder", name, bytes, free_bytes_for(fd));
  }
  return Failure(os_error("reserve", fmt::format("{} bytes for {}", bytes, name), error));
}

Result<SharedFiles> SharedFiles::in_folder(const Path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  if (error) return Failure(os_error("make folder", folder.parent_path().string(), error.value()));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Failure(os_error("make folder", folder.string()));
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return Failure(os_error("open folder", folder.string()));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failure(os_error("stat", folder.string()));
  if (info.st_uid != ::geteuid())
    return permission_denied("folder {} belongs to uid {}, we are {}", folder.string(), info.st_uid, ::geteuid());
  if ((info.st_mode & 0002) != 0)
    return permission_denied("folder {} can be written by everybody: chmod it to 0700", folder.string());
  return SharedFiles(std::move(fd), folder);
}

Result<UniqueFd> SharedFiles::create(const std::string& name, std::uint64_t bytes) {
  if (!folder_) return sized(UniqueFd(::memfd_create(("nmc-" + name).c_str(), MFD_CLOEXEC)), name, bytes);
  remove(name);
  auto fd =
      sized(UniqueFd(::openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)),
            (path_ / name).string(), bytes);
  if (!fd) remove(name);
  return fd;
}

Result<UniqueFd> SharedFiles::open(const std::string& name) {
  if (!folder_) return not_found("{}: there are no files by name", name);
  UniqueFd fd(::openat(folder_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return Failure(os_error("open", (path_ / name).string()));
  return fd;
}

void SharedFiles::remove(const std::string& name) {
  if (folder_) ::unlinkat(folder_.get(), name.c_str(), 0);
}

std::vector<std::string> SharedFiles::names() const {
  std::vector<std::string> names;
  if (!folder_) return names;
  const int copy = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy >= 0 ? ::fdopendir(copy) : nullptr, ::closedir);
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace nmc::store
