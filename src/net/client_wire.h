// Internal to net: the client's connected socket as something that carries frames. Its calls block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/syscall.h"
#include "net/address.h"
#include "net/frame.h"
#include "net/tcp_stream.h"

namespace nmc::net {

// How long a call may wait.
struct Patience {
  Nanos progress = Nanos::zero();  // for a byte to move
  Nanos until = Nanos::max();      // in all, by real_clock()
};

// One wait for a byte to move, however often a signal interrupts it:
//   for (Wait wait(patience); !wait.over(); wait.interrupted()) ...
class Wait {
 public:
  explicit Wait(const Patience& patience);
  // How long to wait now. As long as nothing interrupts, always the patience itself, so that a socket's timeout mostly
  // stays as it is.
  Nanos left() const { return left_; }
  bool over() const { return left_ <= Nanos::zero(); }
  void interrupted() { left_ = started_ + whole_ - real_clock().now(); }
  Failure failure() const;  // kDeadlineExceeded

 private:
  Nanos started_, whole_, left_;
};

// Not thread-safe, except shut(). After an error it isn't used again.
class ClientWire {
 public:
  struct Received {
    Frame frame;  // the body's bytes stay until the next receive()
    std::vector<UniqueFd> fds;
  };

  virtual ~ClientWire() = default;

  // Of a message that is within the carrier's limits.
  virtual Result<void> send(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload,
                            const Patience& patience) = 0;
  // The next frame; its payload is still to be read, whole.
  virtual Result<Received> receive(const Patience& patience) = 0;
  // The payload of the frame received last, `bytes` long, to the front of `to`, which is large enough.
  virtual Result<void> read_payload(std::span<const MutableByteSpan> to, std::uint64_t bytes,
                                    const Patience& patience) = 0;
  // Ends both directions; whoever waits in another call hears that the peer has closed. Thread-safe.
  virtual void shut() = 0;
};

std::unique_ptr<ClientWire> create_unix_client_wire(UniqueFd fd);
std::unique_ptr<ClientWire> create_tcp_client_wire(TcpStream stream, const FrameLimits& limits);

}  // namespace nmc::net
