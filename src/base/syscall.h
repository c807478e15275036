// File descriptors and mappings with owners, and system calls whose failure is a Result that names call, object and
// reason. EINTR is retried. All descriptors are close-on-exec.
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace nmc {

// Error for a failed call: "open /x/y: No such file or directory". Maps errno to the nearest ErrorCode.
Error os_error(std::string_view call, std::string_view object, int error_number = errno);

// Repeats `call` (an expression giving -1 on failure) while it is interrupted.
template <typename Call>
auto retry_on_eintr(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// Owns a descriptor; closes it. Moves, never copies. -1 is empty.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Owns a mapping; unmaps it. Moves, never copies.
class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  // Shared mapping of the first `size` bytes of `fd`; `name` is for messages. The fd may be closed afterwards.
  static Result<Mapping> map(int fd, std::size_t size, Access access, std::string_view name);
  // A new file at `path`, which mustn't exist, with its pages reserved. On failure nothing is left there.
  static Result<Mapping> new_file(const std::string& path, std::size_t size);
  // Private memory from the OS, zeroed, page aligned; asks for huge pages where `size` is worth it.
  static Result<Mapping> anonymous(std::size_t size);

  // The same, but in a file without a name in `folder`, so that the system can write pages out where it lacks memory.
  // Its room on the disk is reserved at once and given back with the mapping.
  static Result<Mapping> nameless_file(const std::string& folder, std::size_t size);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A memfd of `size` bytes with its pages reserved, so that a full machine is an error here (kResourceExhausted with the
// size wanted and the size available) and not a bus error later.
Result<UniqueFd> create_memfd(const std::string& name, std::size_t size);

}  // namespace nmc
