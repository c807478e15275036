#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <system_error>

namespace nmc {
namespace {

constexpr std::size_t kReadStep = 64 * 1024;

// O_NONBLOCK: opening a pipe without a writer would wait for one; for regular files it means nothing.
Result<UniqueFd> open_for_reading(const Path& path) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
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

Result<UniqueFd> open_folder(const Path& folder) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd) return Failure(os_error("open", folder.string()));
  return fd;
}

// A file of our own in `folder`: threads and processes that write there at once don't meet, and what an earlier
// process with our number left behind is stepped over.
struct TemporaryFile {
  Path path;
  UniqueFd fd;
};

Result<TemporaryFile> create_temporary(const Path& folder) {
  static std::atomic<std::uint64_t> count{0};
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    Path path = folder / fmt::format(".nmc-{}-{}.tmp", ::getpid(), count.fetch_add(1, std::memory_order_relaxed));
    UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
    if (fd) return TemporaryFile{std::move(path), std::move(fd)};
    if (errno != EEXIST) return Failure(os_error("create", path.string()));
  }
  return already_exists("{}: {} temporary files of other writers lie here", folder.string(), kTries);
}

Result<void> fill_and_rename(const TemporaryFile& temporary, std::string_view content, const Path& path) {
  NMC_RETURN_IF_ERROR(write_all(temporary.fd.get(), content, path));
  if (::fsync(temporary.fd.get()) != 0) return Failure(os_error("fsync", path.string()));
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) return Failure(os_error("rename to", path.string()));
  return {};
}

// Where a write to `path` ends up: a link's target, since renaming over the link would cut it off from its file (think
// of /dev/stdout). Refuses what is there and no regular file.
Result<Path> resolve_target(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return invalid_argument("{}: expected a regular file or a new name", path.string());
  }
  if (!std::filesystem::is_symlink(path, error)) return path;
  Path target = std::filesystem::canonical(path, error);
  if (error) return Failure(os_error("follow link", path.string(), error.value()));
  return target;
}

}  // namespace

Result<std::string> read_file(const Path& path, std::uint64_t limit) {
  NMC_ASSIGN_OR_RETURN(const UniqueFd fd, open_for_reading(path));
  NMC_ASSIGN_OR_RETURN(const std::uint64_t size, regular_size(fd.get(), path));
  if (size > limit) {
    return invalid_argument("{}: {} bytes, expected at most {}", path.string(), size, limit);
  }
  // The size is only a hint: files of /proc say 0, and others grow or shrink while they are read. One byte more than
  // expected is asked for, so that the end is seen.
  std::string content;
  while (true) {
    const std::size_t at = content.size();
    content.resize(std::max<std::uint64_t>(size, at + kReadStep) + 1);
    const ssize_t got = retry_on_eintr([&] { return ::read(fd.get(), content.data() + at, content.size() - at); });
    if (got < 0) return Failure(os_error("read", path.string()));
    content.resize(at + static_cast<std::size_t>(got));
    if (got == 0) return content;
    if (content.size() > limit) {
      return invalid_argument("{}: more than the {} bytes expected at most", path.string(), limit);
    }
  }
}

Result<void> write_file_atomic(const Path& path, std::string_view content) {
  NMC_ASSIGN_OR_RETURN(const Path target, resolve_target(path));
  const Path folder = target.has_parent_path() ? target.parent_path() : Path(".");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Failure(os_error("create folder", folder.string(), error.value()));
  // Opened before the rename, so that what can fail fails while the file is as it was.
  NMC_ASSIGN_OR_RETURN(const UniqueFd folder_fd, open_folder(folder));

  NMC_ASSIGN_OR_RETURN(const TemporaryFile temporary, create_temporary(folder));
  Result<void> done = fill_and_rename(temporary, content, target);
  if (!done) {
    ::unlink(temporary.path.c_str());
    return done;
  }
  // Some file systems can't sync a folder and say EINVAL.
  if (::fsync(folder_fd.get()) != 0 && errno != EINVAL) return Failure(os_error("fsync", folder.string()));
  return {};
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
