#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

namespace nmc {
namespace {

Result<UniqueFd> open_for_reading(const Path& path) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!fd) return Failure(os_error("open", path.string()));
  return fd;
}

Result<std::uint64_t> regular_size(int fd, const Path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failure(os_error("stat", path.string()));
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument("{}: expected a regular file", path.string());
  }
  return static_cast<std::uint64_t>(info.st_size);
}

Result<void> write_all(int fd, std::string_view content, const Path& path) {
  while (!content.empty()) {
    const ssize_t written = retry_on_eintr([&] { return ::write(fd, content.data(), content.size()); });
    if (written < 0) return Failure(os_error("write", path.string()));
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> sync_folder(const Path& folder) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd) return Failure(os_error("open", folder.string()));
  if (::fsync(fd.get()) != 0) return Failure(os_error("fsync", folder.string()));
  return {};
}

Result<void> write_and_sync(const Path& path, std::string_view content) {
  UniqueFd fd(retry_on_eintr(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
  if (!fd) return Failure(os_error("create", path.string()));
  NMC_RETURN_IF_ERROR(write_all(fd.get(), content, path));
  if (::fsync(fd.get()) != 0) return Failure(os_error("fsync", path.string()));
  return {};
}

}  // namespace

Result<std::string> read_file(const Path& path, std::uint64_t limit) {
  NMC_ASSIGN_OR_RETURN(const UniqueFd fd, open_for_reading(path));
  NMC_ASSIGN_OR_RETURN(const std::uint64_t size, regular_size(fd.get(), path));
  if (size > limit) {
    return invalid_argument("{}: {} bytes, expected at most {}", path.string(), size, limit);
  }
  std::string content(size, '\0');
  std::size_t at = 0;
  while (at < content.size()) {
    const ssize_t got =
        retry_on_eintr([&] { return ::read(fd.get(), content.data() + at, content.size() - at); });
    if (got < 0) return Failure(os_error("read", path.string()));
    if (got == 0) break;  // cut while we read: the caller's parser sees the short content
    at += static_cast<std::size_t>(got);
  }
  content.resize(at);
  return content;
}

Result<void> write_file_atomic(const Path& path, std::string_view content) {
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Failure(os_error("create folder", folder.string(), error.value()));

  const Path temporary = folder / fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid());
  Result<void> done = write_and_sync(temporary, content);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) {
    done = Failure(os_error("rename to", path.string()));
  }
  if (!done) {
    ::unlink(temporary.c_str());
    return done;
  }
  return sync_folder(folder);
}

Result<Mapping> map_file(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const UniqueFd fd, open_for_reading(path));
  NMC_ASSIGN_OR_RETURN(const std::uint64_t size, regular_size(fd.get(), path));
  return Mapping::map(fd.get(), size, Mapping::Access::kRead, path.string());
}

Result<std::uint64_t> file_size(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const UniqueFd fd, open_for_reading(path));
  return regular_size(fd.get(), path);
}

Result<TemporaryFolder> TemporaryFolder::create(std::string_view prefix) {
  std::error_code error;
  Path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  std::string name = (base / fmt::format("{}-XXXXXX", prefix)).string();
  if (::mkdtemp(name.data()) == nullptr) return Failure(os_error("create folder", name));
  return TemporaryFolder(Path(name));
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace nmc
