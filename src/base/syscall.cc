#include "base/syscall.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

#include "base/memory.h"

namespace nmc {
namespace {

// So that a lack of room is an error now and not a bus error later.
Result<void> reserve_pages(int fd, std::size_t size, std::string_view name) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd, 0, static_cast<off_t>(size));
  if (error != 0) return Failure(os_error("reserve", fmt::format("{} bytes for {}", size, name), error));
  return {};
}

}  // namespace

Error os_error(std::string_view call, std::string_view object, int error_number) {
  ErrorCode code = ErrorCode::kIo;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR: code = ErrorCode::kNotFound; break;
    case EEXIST:
    case EADDRINUSE: code = ErrorCode::kAlreadyExists; break;
    case EACCES:
    case EROFS:
    case EPERM: code = ErrorCode::kPermissionDenied; break;
    case ENOSPC:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case EDQUOT: code = ErrorCode::kResourceExhausted; break;
    case EPIPE:
    case ECONNABORTED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
    case ECONNREFUSED: code = ErrorCode::kUnavailable; break;
    case ETIMEDOUT: code = ErrorCode::kDeadlineExceeded; break;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL: code = ErrorCode::kInvalidArgument; break;
    default: break;
  }
  return Error{code, fmt::format("{} {}: {}", call, object, std::generic_category().message(error_number))};
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<Mapping> Mapping::map(int fd, std::size_t size, Access access, std::string_view name) {
  if (size == 0) return Mapping();
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Failure(os_error("mmap", name));
  return Mapping(static_cast<std::byte*>(data), size);
}

Result<Mapping> Mapping::anonymous(std::size_t size) {
  if (size == 0) return Mapping();
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Failure(os_error("mmap", fmt::format("{} anonymous bytes", size)));
  constexpr std::size_t kWorthHugePages = 8u << 20;
  if (size >= kWorthHugePages) ::madvise(data, size, MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte*>(data), size);
}

Result<Mapping> Mapping::nameless_file(const std::string& folder, std::size_t size) {
  const UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) return Failure(os_error("create a file in", folder));
  if (size == 0) return Mapping();
  NMC_RETURN_IF_ERROR(reserve_pages(fd.get(), size, fmt::format("a file in {}", folder)));
  return map(fd.get(), size, Access::kReadWrite, folder);
}

Result<Mapping> Mapping::new_file(const std::string& path, std::size_t size) {
  const UniqueFd fd(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return Failure(os_error("create", path));
  if (size == 0) return Mapping();
  Result<void> reserved = reserve_pages(fd.get(), size, path);
  if (!reserved) {
    ::unlink(path.c_str());
    return Failure(std::move(reserved).error());
  }
  return map(fd.get(), size, Access::kReadWrite, path);
}

Result<UniqueFd> create_memfd(const std::string& name, std::size_t size) {
  // The kernel would hand out pages until it has to kill somebody, so a size beyond all reason is refused beforehand.
  const std::uint64_t available = available_memory();
  if (size > available) {
    return resource_exhausted("memory for {}: {} bytes wanted, {} available", name, size, available);
  }
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!fd) return Failure(os_error("memfd_create", name));
  if (size > 0) NMC_RETURN_IF_ERROR(reserve_pages(fd.get(), size, name));
  return fd;
}

}  // namespace nmc
