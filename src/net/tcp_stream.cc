#include "net/tcp_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

#include "net/tls.h"

namespace nmc::net {
namespace {

msghdr message_of(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return message;
}

StreamIo io_of(ssize_t moved) {
  return moved >= 0 ? StreamIo{.bytes = static_cast<std::size_t>(moved)} : StreamIo{.error_number = errno};
}

}  // namespace

TcpStream::TcpStream(UniqueFd fd) : fd_(std::move(fd)) {}
TcpStream::TcpStream(TcpStream&& other) noexcept = default;
TcpStream::~TcpStream() = default;

void TcpStream::secure(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }

bool TcpStream::has_pending() const { return tls_ != nullptr && tls_->has_pending(); }

void TcpStream::tune(int fd) {
  const auto set = [fd](int level, int option, int value) {
    (void)::setsockopt(fd, level, option, &value, sizeof value);  // without them it works, less well
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void TcpStream::tune_connected(int fd) {
  const auto host_of = [fd](auto name_of) -> std::string {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (name_of(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "";
    if (name.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(name).sin_addr;
      return std::string(reinterpret_cast<const char*>(&v4), sizeof v4);
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name).sin6_addr;
    return std::string(reinterpret_cast<const char*>(&v6), sizeof v6);
  };
  const std::string peer = host_of(::getpeername);
  if (peer.empty() || peer != host_of(::getsockname)) return;
  constexpr int kBytes = 256 << 10;
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof kBytes);
}

StreamIo TcpStream::read(std::span<const iovec> to) {
  if (tls_ != nullptr) return tls_->read(to);
  msghdr message = message_of(to);
  return io_of(::recvmsg(fd_.get(), &message, 0));
}

StreamIo TcpStream::write(std::span<const iovec> from) {
  if (tls_ != nullptr) return tls_->write(from);
  const msghdr message = message_of(from);
  return io_of(::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace nmc::net
