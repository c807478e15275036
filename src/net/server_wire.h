// Internal to net: the server's accepted socket as something that carries frames, on an event loop.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "base/syscall.h"
#include "net/frame.h"
#include "net/ready_fd.h"

namespace nmc::net {

class TlsContext;

// Belongs to the loop's thread. After an error other than check()'s it isn't used again.
class ServerWire {
 public:
  // A reply's parts, where they lie.
  struct Outgoing {
    FrameHeader header;
    ByteSpan body;
    std::span<const ByteSpan> payload;
    std::span<const int> fds;
  };

  virtual ~ServerWire() = default;

  // The next frame, without its payload; the body's bytes stay until the next receive(), for which the payload must
  // have been read whole. Nothing: the peer closed between two frames. Waits until `first_byte` for a frame to begin,
  // then as long as it advances, but not beyond `whole`. With TLS the first one shakes hands first;
  // kPermissionDenied then is for a peer that came without, and can still be told so by send().
  virtual boost::asio::awaitable<Result<std::optional<Frame>>> receive(LoopTime first_byte, LoopTime whole) = 0;
  // The next bytes of its payload: as many as there must be.
  virtual boost::asio::awaitable<Result<void>> read_payload(MutableByteSpan to) = 0;
  // kInvalidArgument: the carrier can't take that; nothing was sent.
  virtual Result<void> check(const Outgoing& reply) const = 0;
  virtual boost::asio::awaitable<Result<void>> send(const Outgoing& reply) = 0;
  // Ends a wait, now and from now on.
  virtual void close() = 0;
};

struct ServerWireOptions {
  FrameLimits limits;
  Nanos progress_deadline;
  std::shared_ptr<const TlsContext> tls;  // TCP: all goes inside; nullptr: plain
};
std::unique_ptr<ServerWire> create_unix_server_wire(boost::asio::io_context& loop, UniqueFd fd,
                                                    const ServerWireOptions& options);
std::unique_ptr<ServerWire> create_tcp_server_wire(boost::asio::io_context& loop, UniqueFd fd,
                                                   const ServerWireOptions& options);

}  // namespace nmc::net
