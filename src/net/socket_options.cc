#include "net/socket_options.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "net/address.h"
#include "net/frame.h"

namespace nmc::net {

Result<sockaddr_un> unix_socket_name(const std::string& path) {
  if (path.empty() || path.size() > kUnixPathBytesMax) {
    return invalid_argument("unix:{}: the path has {} bytes, expected 1 to {}", path, path.size(), kUnixPathBytesMax);
  }
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

void set_timeout(int fd, int option, Nanos timeout) {
  using std::chrono::microseconds;
  using std::chrono::seconds;
  // Zero would mean to wait for ever.
  const auto whole =
      std::clamp<microseconds>(std::chrono::ceil<microseconds>(timeout), microseconds(1), std::chrono::hours(24 * 365));
  const auto full_seconds = std::chrono::floor<seconds>(whole);
  const timeval value{.tv_sec = full_seconds.count(), .tv_usec = (whole - full_seconds).count()};
  NMC_ASSERT(::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) == 0, "errno={}", errno);
}

void hold_datagrams(int fd) {
  // Capped by the system's limit, which is above one datagram; more lets more requests wait.
  const int bytes = 4 * static_cast<int>(kDatagramBytesMax);
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

}  // namespace nmc::net
