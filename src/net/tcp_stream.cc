#include "net/tcp_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

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

StreamIo TcpStream::read(std::span<const iovec> to) {
  msghdr message = message_of(to);
  return io_of(::recvmsg(fd_.get(), &message, 0));
}

StreamIo TcpStream::write(std::span<const iovec> from) {
  const msghdr message = message_of(from);
  return io_of(::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace nmc::net
