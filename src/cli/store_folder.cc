#include "cli/store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/entropy.h"
#include "base/log.h"
#include "store/node_server.h"
#include "store/shared_files.h"

namespace nmc::cli {
namespace {

constexpr const char* kMemory = "/dev/shm";
constexpr std::string_view kOncePrefix = "once-";
// A lock file this young may belong to a master that is about to lock it.
constexpr auto kStartingAtMost = std::chrono::seconds(10);

std::string name_of_root() { return fmt::format("nano-mooncake-{}", ::geteuid()); }

UniqueFd open_lock(const Path& folder) {
  return UniqueFd(::open((folder / store::NodeServer::kLockName).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
}

// The folder of this user's masters, made where it is missing.
Result<Path> find_root() {
  const std::string name = name_of_root();
  const Path root = Path(kMemory) / name;
  const auto in_memory = store::SharedFiles::in_folder(root);
  if (in_memory && ::access(root.c_str(), W_OK | X_OK) == 0) return root;
  std::error_code error;
  const Path temporary = std::filesystem::temp_directory_path(error);
  if (error) return Failure(os_error("find", "the temporary folder", error.value()));
  NMC_RETURN_IF_ERROR(store::SharedFiles::in_folder(temporary / name));
  log_warning("{} can't be used ({}): the store lies in {}, which is as fast as what is mounted there", root.string(),
              in_memory ? "it can't be written" : in_memory.error().message, (temporary / name).string());
  return temporary / name;
}

// Its lock, so that nobody begins with it; nothing: there is a master, or one that may be starting.
UniqueFd lock_abandoned(const Path& folder) {
  UniqueFd lock = open_lock(folder);
  struct stat info {};
  if (!lock || ::fstat(lock.get(), &info) != 0) return {};
  const auto made = std::chrono::system_clock::from_time_t(info.st_mtime);
  if (std::chrono::system_clock::now() - made < kStartingAtMost) return {};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return lock;
}

// Objects lie in segments. Those of a dead master wait for the next one of its port.
bool holds_objects(const Path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("segment.")) return true;
  }
  return static_cast<bool>(error);
}

bool is_port(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Folders of masters that are gone, unless somebody could go on with what is in them. `ours` is left alone.
void sweep(const Path& root, const std::string& ours) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == ours || !(name.starts_with(kOncePrefix) || is_port(name))) continue;
    const UniqueFd lock = lock_abandoned(entry.path());
    if (!lock || (is_port(name) && holds_objects(entry.path()))) continue;
    log_info("removing {}, which a killed master left", entry.path().string());
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

std::string once_prefix_of(pid_t pid) { return fmt::format("{}{}-", kOncePrefix, pid); }

// A process may have several.
std::string once_name() { return fmt::format("{}{:016x}", once_prefix_of(::getpid()), machine_random()); }

}  // namespace

Result<StoreFolder> StoreFolder::choose(const std::optional<Path>& given, std::uint16_t port) {
  if (given) return StoreFolder(*given, {}, false);
  NMC_ASSIGN_OR_RETURN(const Path root, find_root());
  const std::string name = port == 0 ? once_name() : std::to_string(port);
  sweep(root, name);
  return StoreFolder(root / name, root, port == 0);
}

std::vector<Path> abandoned_store_folders_of(pid_t pid) {
  std::vector<Path> found;
  std::error_code ignored;
  const std::string name = name_of_root();
  for (const Path& root : {Path(kMemory) / name, std::filesystem::temp_directory_path(ignored) / name}) {
    for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
      if (!entry.path().filename().string().starts_with(once_prefix_of(pid))) continue;
      // Held: by a process that has this pid in another container.
      const UniqueFd lock = open_lock(entry.path());
      if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) found.push_back(entry.path());
    }
  }
  return found;
}

StoreFolder::StoreFolder(StoreFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      root_(std::exchange(other.root_, {})),
      ends_(std::exchange(other.ends_, false)) {}

StoreFolder::~StoreFolder() {
  std::error_code ignored;
  if (ends_) std::filesystem::remove_all(path_, ignored);
  if (!root_.empty()) ::rmdir(root_.c_str());  // unless another master's folder is in it
}

}  // namespace nmc::cli
