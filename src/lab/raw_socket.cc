#include "lab/raw_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"

namespace nmc::lab {
namespace {

void set_no_delay(const UniqueFd& fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = retry_on_eintr([&] { return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = retry_on_eintr([&] { return ::recv(fd, bytes.data(), bytes.size(), MSG_WAITALL); });
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<RawSocket>> RawSocket::start(std::size_t connections, std::span<const std::byte> source) {
  std::unique_ptr<RawSocket> socket(new RawSocket(source));
  NMC_RETURN_IF_ERROR(socket->connect(connections));
  for (const UniqueFd& fd : socket->far_) {
    socket->threads_.emplace_back([raw = socket.get(), number = fd.get()] { raw->answer(number); });
  }
  return socket;
}

Result<void> RawSocket::connect(std::size_t connections) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (!listener || ::bind(listener.get(), plain, length) != 0 ||
      ::listen(listener.get(), static_cast<int>(connections)) != 0 ||
      ::getsockname(listener.get(), plain, &length) != 0) {
    return Failure(os_error("listen", "a loopback port"));
  }
  for (std::size_t i = 0; i < connections; ++i) {
    UniqueFd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!near || retry_on_eintr([&] { return ::connect(near.get(), plain, length); }) != 0)
      return Failure(os_error("connect", "a loopback port"));
    UniqueFd far(retry_on_eintr([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC); }));
    if (!far) return Failure(os_error("accept", "a loopback port"));
    set_no_delay(near);
    set_no_delay(far);
    near_.push_back(std::move(near));
    far_.push_back(std::move(far));
  }
  return {};
}

RawSocket::~RawSocket() {
  for (const UniqueFd& fd : near_) ::shutdown(fd.get(), SHUT_RDWR);
  for (auto& thread : threads_) thread.join();
}

void RawSocket::answer(int fd) const {
  std::uint64_t wanted = 0;
  while (receive_all(fd, std::as_writable_bytes(std::span(&wanted, 1)))) {
    if (!send_all(fd, source_.first(std::min<std::uint64_t>(wanted, source_.size())))) return;
  }
}

Result<void> RawSocket::fetch(std::size_t connection, std::span<std::byte> to) {
  NMC_REQUIRE(connection < near_.size() && to.size() <= source_.size(), "connection={} bytes={}", connection,
              to.size());
  const int fd = near_[connection].get();
  const std::uint64_t wanted = to.size();
  if (send_all(fd, std::as_bytes(std::span(&wanted, 1))) && receive_all(fd, to)) return {};
  return Failure(os_error("fetch", "a loopback connection"));
}

}  // namespace nmc::lab
