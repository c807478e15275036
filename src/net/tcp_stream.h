// For net, and for who measures other servers: one TCP connection as a stream of bytes, plain or inside TLS. Every byte
// of either end goes through read() and write().
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/syscall.h"

namespace nmc::net {

struct StreamIo {
  std::size_t bytes = 0;
  int error_number = 0;  // 0 and no bytes: the peer has closed

  bool would_block() const { return error_number == EAGAIN || error_number == EWOULDBLOCK; }
};

class TlsSession;

// Not thread-safe, except as said. Moves.
class TcpStream {
 public:
  explicit TcpStream(UniqueFd fd);
  TcpStream(TcpStream&& other) noexcept;
  ~TcpStream();

  // Small messages leave at once, and the kernel notices a peer whose host is gone after about a minute. Buffers are
  // left to the kernel, which sizes them to the path; a fixed size would be capped far lower.
  static void tune(int fd);
  // Of a connected one. Where both ends are on one host little is kept in flight: what waits in a large buffer has left
  // the cache by the time it is read, which costs more than all else together.
  static void tune_connected(int fd);

  // From here on all goes through `tls`, whose handshake is done; it works on fd().
  void secure(std::unique_ptr<TlsSession> tls);

  int fd() const { return fd_.get(); }
  // Waits for the first byte if the descriptor is a blocking one, for at most its SO_RCVTIMEO.
  StreamIo read(std::span<const iovec> to);
  // Never waits. After one that moved nothing the next one must begin with the same bytes.
  StreamIo write(std::span<const iovec> from);
  // There may be something to read although the descriptor has nothing.
  bool has_pending() const;

 private:
  UniqueFd fd_;
  std::unique_ptr<TlsSession> tls_;  // nullptr: plain
};

}  // namespace nmc::net
