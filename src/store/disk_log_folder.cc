#include "store/disk_log_folder.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/hash.h"
#include "base/log.h"

namespace nmc::store::disk {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLogPrefix = "log-", kLogSuffix = ".nmc";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::string_view kQuarantineSuffix = ".bad";
constexpr std::string_view kFormatTitle = "nano-mooncake disk log, version ";
constexpr std::size_t kQuarantineFilesMax = 1024;
constexpr std::size_t kReasonsMax = 16;

// The number in "<prefix><exactly `digits` lower-case hex digits><suffix>".
std::optional<std::uint64_t> number_in_name(std::string_view name, std::string_view prefix, std::size_t digits,
                                            std::string_view suffix) {
  if (name.size() != prefix.size() + digits + suffix.size()) return std::nullopt;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  const std::string_view hex = name.substr(prefix.size(), digits);
  if (hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), number, 16);
  return number;
}

Result<std::vector<std::string>> names_in(const Path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return Failure(os_error("list", folder.string(), error.value()));
  return names;
}

Result<UniqueFd> lock_folder(const Path& folder) {
  const Path path = folder / "LOCK";
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644); }));
  if (!fd) return Failure(os_error("open", path.string()));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Failure(os_error("lock", path.string()));
    char owner[16] = {};
    const ssize_t size = ::pread(fd.get(), owner, sizeof owner - 1, 0);
    const std::string_view text(owner, size > 0 ? static_cast<std::size_t>(size) : 0);
    const std::string_view pid = text.substr(0, std::min(text.find('\n'), text.size()));
    return failure(ErrorCode::kAlreadyExists, "disk log folder {} is in use by process {}", folder.string(),
                   pid.empty() ? "(unknown)" : pid);
  }
  // Informs people and the message above; the lock itself is what counts, so a failure to write is no error.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    log_warning("disk log folder {}: can't note the owner in LOCK", folder.string());
  }
  return fd;
}

std::string format_text(std::uint64_t salt) {
  return fmt::format("{}{}\nsalt {:016x}\n", kFormatTitle, kFormatVersion, salt);
}

// The salt in FORMAT.
Result<std::uint64_t> parse_format(const std::string& text, const Path& path) {
  const std::size_t line_end = std::min(text.find('\n'), text.size());
  if (!text.starts_with(kFormatTitle)) {
    return corrupt("{}: expected \"{}{}\"", path.string(), kFormatTitle, kFormatVersion);
  }
  const std::string version = text.substr(kFormatTitle.size(), line_end - kFormatTitle.size());
  if (version != fmt::format("{}", kFormatVersion)) {
    return version_mismatch("{}: disk log of version {}, expected {}", path.string(), version, kFormatVersion);
  }
  const std::string_view rest = std::string_view(text).substr(line_end);
  const auto salt = number_in_name(rest, "\nsalt ", 16, "\n");
  if (!salt) return corrupt("{}: expected a line \"salt\" with 16 hex digits", path.string());
  return *salt;
}

Result<std::uint64_t> read_or_write_format(const Path& folder, bool has_files) {
  const Path path = folder / "FORMAT";
  auto text = read_file(path, 4096);
  if (text) return parse_format(*text, path);
  if (text.error().code != ErrorCode::kNotFound) return Failure(std::move(text).error());
  if (has_files) return corrupt("{}: missing beside log files; remove the folder to start afresh", path.string());
  std::uint64_t salt = 0;
  if (::getrandom(&salt, sizeof salt, 0) != sizeof salt) return Failure(os_error("getrandom", "for a disk log"));
  NMC_RETURN_IF_ERROR(write_file_atomic(path, format_text(salt)));
  return salt;
}

}  // namespace

Result<LogFolder> LogFolder::open(const Path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Failure(os_error("create folder", path.string(), error.value()));
  NMC_ASSIGN_OR_RETURN(UniqueFd lock, lock_folder(path));
  LogFolder folder(path, std::move(lock), 0);
  NMC_ASSIGN_OR_RETURN(const auto numbers, folder.list());
  NMC_ASSIGN_OR_RETURN(folder.salt_, read_or_write_format(path, !numbers.empty()));
  NMC_ASSIGN_OR_RETURN(const auto names, names_in(path));
  for (const std::string& name : names) {
    if (name.ends_with(kTemporarySuffix)) fs::remove(path / name, error);
  }
  return folder;
}

Result<std::vector<std::uint32_t>> LogFolder::list() const {
  NMC_ASSIGN_OR_RETURN(const auto names, names_in(path_));
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = number_in_name(name, kLogPrefix, 8, kLogSuffix)) {
      numbers.push_back(static_cast<std::uint32_t>(*number));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Path LogFolder::file_path(std::uint32_t number) const {
  return path_ / fmt::format("{}{:08x}{}", kLogPrefix, number, kLogSuffix);
}

Path LogFolder::temporary_path() const { return path_ / fmt::format("compaction{}", kTemporarySuffix); }

Result<void> LogFolder::sync() const {
  UniqueFd fd(retry_on_eintr([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd) return Failure(os_error("open", path_.string()));
  if (::fsync(fd.get()) != 0) return Failure(os_error("fsync", path_.string()));
  return {};
}

Quarantine::Quarantine(Path folder, std::uint64_t bytes_max) : folder_(std::move(folder)), bytes_max_(bytes_max) {
  const auto names = names_in(folder_);
  if (!names) return;  // there is none yet
  for (const std::string& name : *names) {
    const auto number = number_in_name(name, "", 16, kQuarantineSuffix);
    const auto size = number ? nmc::file_size(folder_ / name) : Result<std::uint64_t>(0);
    if (!number || !size) continue;
    files_[*number] = *size;
    used_bytes_ += *size;
    next_ = std::max(next_, *number + 1);
  }
  make_room(0);
}

void Quarantine::make_room(std::uint64_t bytes) {
  while (!files_.empty() && (used_bytes_ + bytes > bytes_max_ || files_.size() >= kQuarantineFilesMax)) {
    const auto oldest = files_.begin();
    std::error_code error;
    fs::remove(folder_ / fmt::format("{:016x}{}", oldest->first, kQuarantineSuffix), error);
    used_bytes_ -= oldest->second;
    files_.erase(oldest);
  }
}

void Quarantine::add(const ByteSource& source, const std::string& file_name, const Damage& damage) {
  ++entries_;
  damaged_bytes_ += damage.bytes;
  reasons_.push_back(fmt::format("{} at {}, {} bytes: {}", file_name, damage.offset, damage.bytes, damage.reason));
  if (reasons_.size() > kReasonsMax) reasons_.pop_front();
  log_warning("disk log quarantines {}", reasons_.back());
  auto copied = copy(source, reasons_.back() + "\n\n", damage);
  if (!copied) log_warning("disk log keeps no copy of it: {}", copied.error().message);
}

Result<void> Quarantine::copy(const ByteSource& source, const std::string& text, const Damage& damage) {
  if (text.size() > bytes_max_) return {};
  const std::uint64_t kept = std::min(damage.bytes, bytes_max_ - text.size());
  make_room(text.size() + kept);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return Failure(os_error("create folder", folder_.string(), error.value()));

  const Path path = folder_ / fmt::format("{:016x}{}", next_, kQuarantineSuffix);
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
  if (!fd) return Failure(os_error("create", path.string()));
  std::uint64_t written = 0;
  files_[next_++] = 0;
  const auto write = [&](std::span<const std::byte> bytes) -> Result<void> {
    while (!bytes.empty()) {
      const ssize_t size = retry_on_eintr([&] { return ::write(fd.get(), bytes.data(), bytes.size()); });
      if (size < 0) return Failure(os_error("write", path.string()));
      bytes = bytes.subspan(static_cast<std::size_t>(size));
      written += static_cast<std::uint64_t>(size);
    }
    return {};
  };
  Result<void> done = write(as_bytes(text));
  std::vector<std::byte> window(std::min<std::uint64_t>(kept, 256 << 10));
  for (std::uint64_t at = 0; done && at < kept; at += window.size()) {
    const auto piece = std::span(window).first(std::min<std::uint64_t>(window.size(), kept - at));
    done = source.read(damage.offset + at, piece);
    if (done) done = write(piece);
  }
  files_.rbegin()->second = written;
  used_bytes_ += written;
  return done;
}

}  // namespace nmc::store::disk
