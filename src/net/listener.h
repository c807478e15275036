// Internal to net: a listening, non-blocking, close-on-exec socket.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::net {

// A Unix socket file that is removed with its owner. Moves.
class UnixListener {
 public:
  // Replaces the file of a server that is gone. kAlreadyExists: a live server has it, or it is no socket.
  static Result<UnixListener> open(const std::string& path, mode_t mode);
  UnixListener(UnixListener&& other) noexcept
      : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, {})), file_(other.file_) {}
  ~UnixListener();

  UniqueFd take_fd() { return std::move(fd_); }

 private:
  UnixListener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;     // "": moved away
  struct stat file_ {};  // as we made it
};

struct TcpListener {
  UniqueFd fd;
  std::uint16_t port = 0;
  bool loopback = false;  // reachable from this host only
};
// Port 0 takes a free one. kAlreadyExists: the port is in use; the message names host and port.
Result<TcpListener> listen_tcp(const std::string& host, std::uint16_t port);

}  // namespace nmc::net
