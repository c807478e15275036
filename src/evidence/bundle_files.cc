#include "evidence/bundle_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "base/syscall.h"

namespace nmc::evidence {
namespace {

constexpr int kFolderDepthMax = 16;
constexpr std::size_t kReadStep = 64 * 1024;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

class ArchiveFiles final : public BundleFiles {
 public:
  explicit ArchiveFiles(std::span<const std::byte> archive) {
    ZipContent content = read_zip(archive);
    faults_ = std::move(content.faults);
    complete_ = content.complete;
    std::set<std::string_view> faulty;
    for (const ContainerFault& fault : faults_) faulty.insert(fault.path);
    for (ZipEntry& entry : content.entries) {
      names_.push_back(entry.name);
      if (!faulty.contains(entry.name)) contents_.emplace(std::move(entry.name), entry.bytes);
    }
  }

  std::optional<std::string> read(std::string_view name) override {
    const auto found = contents_.find(name);
    if (found == contents_.end()) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(found->second.data()), found->second.size());
  }

 private:
  std::map<std::string, std::span<const std::byte>, std::less<>> contents_;
};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// All of an open file, of which there may be more by now than when it was listed; nothing with errno, or with 0 where
// it is too large.
std::optional<std::string> read_open(int fd) {
  std::string content;
  for (;;) {
    const std::size_t at = content.size();
    content.resize(at + kReadStep);
    const ssize_t got = retry_on_eintr([&] { return ::read(fd, content.data() + at, kReadStep); });
    if (got < 0) return std::nullopt;
    content.resize(at + static_cast<std::size_t>(got));
    if (got == 0) return content;
    if (content.size() > kZipFileBytesMax) {
      errno = 0;
      return std::nullopt;
    }
  }
}

class FolderFiles final : public BundleFiles {
 public:
  explicit FolderFiles(UniqueFd root) : root_(std::move(root)) {}

  Result<void> list() {
    NMC_RETURN_IF_ERROR(list_folder(root_.get(), "", 0));
    if (bytes_ > kZipBytesMax) {
      fault("bomb", "", fmt::format("{} bytes, expected at most {}", bytes_, kZipBytesMax));
      readable_.clear();
    }
    return {};
  }

  std::optional<std::string> read(std::string_view name) override {
    if (!readable_.contains(name)) return std::nullopt;
    const UniqueFd fd = open_below(std::string(name));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) return unreadable(name, std::generic_category().message(errno));
    if (!S_ISREG(info.st_mode)) return unreadable(name, "no file any more");
    std::optional<std::string> content = read_open(fd.get());
    if (!content && errno != 0) return unreadable(name, std::generic_category().message(errno));
    if (!content) {
      fault("bomb", std::string(name), fmt::format("it grew beyond {} bytes", kZipFileBytesMax));
      readable_.erase(readable_.find(name));
    }
    return content;
  }

 private:
  void fault(const char* kind, std::string path, std::string detail) {
    faults_.push_back({kind, std::move(path), std::move(detail)});
  }

  std::optional<std::string> unreadable(std::string_view name, const std::string& why) {
    fault("malformed", std::string(name), "it can't be read: " + why);
    readable_.erase(readable_.find(name));  // said once
    return std::nullopt;
  }

  // Step by step, so that no folder on the way can be a link.
  UniqueFd open_below(const std::string& name) const {
    UniqueFd folder;
    std::size_t begin = 0;
    const auto at = [&] { return folder ? folder.get() : root_.get(); };
    for (std::size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1) {
      folder = UniqueFd(::openat(at(), name.substr(begin, end - begin).c_str(), kFolderFlags | O_NOFOLLOW));
      if (!folder) return folder;
    }
    // Opening a pipe that took its place must not wait.
    return UniqueFd(::openat(at(), name.c_str() + begin, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  }

  Result<void> list_folder(int fd, const std::string& prefix, int depth) {
    if (depth > kFolderDepthMax) {
      complete_ = false;
      fault("malformed", prefix, fmt::format("more than {} folders deep", kFolderDepthMax));
      return {};
    }
    UniqueFd own(::openat(fd, ".", kFolderFlags));
    const std::unique_ptr<DIR, CloseFolder> folder(own ? ::fdopendir(own.get()) : nullptr);
    if (!folder) return Failure(os_error("list", prefix.empty() ? "the folder" : prefix));
    static_cast<void>(own.release());
    std::size_t entries = 0;
    for (const dirent* entry; errno = 0, (entry = ::readdir(folder.get())) != nullptr;) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      ++entries;
      if (++entries_ > kZipEntriesMax) {
        complete_ = false;
        if (entries_ == kZipEntriesMax + 1) fault("malformed", "", fmt::format("more than {} files", kZipEntriesMax));
        return {};
      }
      NMC_RETURN_IF_ERROR(add(fd, entry->d_name, prefix, depth));
    }
    if (errno != 0) return Failure(os_error("list", prefix));
    // An archive has no such thing, so it is nothing that was exported.
    if (entries == 0 && depth > 0) fault("extra", prefix, "a folder without files");
    return {};
  }

  Result<void> add(int fd, const char* step, const std::string& prefix, int depth) {
    std::string name = prefix.empty() ? step : prefix + "/" + step;
    struct stat info {};
    if (::fstatat(fd, step, &info, AT_SYMLINK_NOFOLLOW) != 0) return Failure(os_error("look at", name));
    if (S_ISDIR(info.st_mode)) {
      const UniqueFd below(::openat(fd, step, kFolderFlags | O_NOFOLLOW));
      if (!below) return Failure(os_error("open", name));
      return list_folder(below.get(), name, depth + 1);
    }
    names_.push_back(name);
    if (S_ISLNK(info.st_mode)) {
      fault("link", std::move(name), "a link, expected a file");
    } else if (!S_ISREG(info.st_mode)) {
      fault("malformed", std::move(name), "neither a file nor a folder");
    } else if (static_cast<std::uint64_t>(info.st_size) > kZipFileBytesMax) {
      fault("bomb", std::move(name), fmt::format("{} bytes, expected at most {}", info.st_size, kZipFileBytesMax));
    } else {
      bytes_ += static_cast<std::uint64_t>(info.st_size);
      readable_.insert(std::move(name));
    }
    return {};
  }

  const UniqueFd root_;
  std::set<std::string, std::less<>> readable_;
  std::size_t entries_ = 0;  // files and folders
  std::uint64_t bytes_ = 0;  // of readable ones
};

}  // namespace

std::unique_ptr<BundleFiles> files_of_archive(std::span<const std::byte> archive) {
  return std::make_unique<ArchiveFiles>(archive);
}

Result<std::unique_ptr<BundleFiles>> files_of_folder(const Path& folder) {
  UniqueFd root(::open(folder.c_str(), kFolderFlags));
  if (!root) return Failure(os_error("open", folder.string()));
  auto files = std::make_unique<FolderFiles>(std::move(root));
  if (Result<void> listed = files->list(); !listed)
    return Failure(std::move(listed).error().with_context(folder.string()));
  return files;
}

}  // namespace nmc::evidence
