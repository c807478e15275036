#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "net/client_wire.h"
#include "net/receive_buffer.h"
#include "net/socket_options.h"
#include "net/span_cursor.h"
#include "net/tcp_stream.h"

namespace nmc::net {
namespace {

class TcpClientWire final : public ClientWire {
 public:
  TcpClientWire(TcpStream stream, const FrameLimits& limits) : limits_(limits), stream_(std::move(stream)) {}

  Result<void> send(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload,
                    const Patience& patience) override {
    const FrameHeaderBytes encoded = encode_frame_header(header);
    const std::array<ByteSpan, 2> head{encoded, body};
    SpanCursor<const std::byte> rest(head, payload);
    Iovecs pieces;
    while (rest.left() > 0) {
      const StreamIo io = stream_.write(rest.next(pieces));
      if (io.error_number == 0) {
        rest.advance(io.bytes);
      } else if (io.would_block()) {
        NMC_RETURN_IF_ERROR(wait_writable(patience));
      } else if (io.error_number != EINTR) {
        return Failure(os_error("send", "to the peer", io.error_number));
      }
    }
    return {};
  }

  Result<Received> receive(const Patience& patience) override {
    buffer_.consume(std::exchange(used_, 0));
    NMC_RETURN_IF_ERROR(fill(kFrameMagicBytes, patience));
    NMC_RETURN_IF_ERROR(check_frame_start(buffer_.bytes()));
    NMC_RETURN_IF_ERROR(fill(kFrameHeaderBytes, patience));
    NMC_ASSIGN_OR_RETURN(const FrameHeader header,
                         decode_frame_header(buffer_.bytes().first<kFrameHeaderBytes>(), limits_));
    buffer_.consume(kFrameHeaderBytes);
    NMC_RETURN_IF_ERROR(fill(header.body_bytes, patience));
    used_ = header.body_bytes;
    return Received{.frame = {.header = header, .body = buffer_.bytes().first(used_), .payload = {}}, .fds = {}};
  }

  Result<void> read_payload(std::span<const MutableByteSpan> to, std::uint64_t bytes,
                            const Patience& patience) override {
    SpanCursor<std::byte> rest(to);
    NMC_ASSERT(rest.left() >= bytes, "room={} bytes={}", rest.left(), bytes);
    rest.limit(bytes);
    used_ += rest.take(buffer_.bytes().subspan(used_));
    Iovecs pieces;
    while (rest.left() > 0) {
      NMC_ASSIGN_OR_RETURN(const std::size_t count, read_some(rest.next(pieces), patience));
      rest.advance(count);
    }
    return {};
  }

  void shut() override { ::shutdown(stream_.fd(), SHUT_RDWR); }

 private:
  Result<void> fill(std::size_t bytes, const Patience& patience) {
    while (buffer_.size() < bytes) {
      const MutableByteSpan room = buffer_.prepare(bytes);
      const iovec piece{room.data(), room.size()};
      NMC_ASSIGN_OR_RETURN(const std::size_t count, read_some({&piece, 1}, patience));
      buffer_.commit(count);
    }
    return {};
  }

  // At least one byte.
  Result<std::size_t> read_some(std::span<const iovec> to, const Patience& patience) {
    Wait wait(patience);
    for (; !wait.over(); wait.interrupted()) {
      set_receive_timeout(wait.left());
      const StreamIo io = stream_.read(to);
      if (io.bytes > 0) return io.bytes;
      if (io.error_number == 0) return unavailable("the peer closed the connection");
      if (io.would_block()) break;
      if (io.error_number != EINTR) return Failure(os_error("receive", "from the peer", io.error_number));
    }
    return wait.failure();
  }

  Result<void> wait_writable(const Patience& patience) {
    Wait wait(patience);
    for (; !wait.over(); wait.interrupted()) {
      const auto left = wait.left().count();
      const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
      pollfd poll{.fd = stream_.fd(), .events = POLLOUT, .revents = 0};
      const int ready = ::ppoll(&poll, 1, &timeout, nullptr);
      if (ready > 0) return {};
      if (ready == 0) break;
      if (errno != EINTR) return Failure(os_error("poll", "the peer"));
    }
    return wait.failure();
  }

  void set_receive_timeout(Nanos timeout) {
    if (timeout == receive_timeout_) return;
    set_timeout(stream_.fd(), SO_RCVTIMEO, timeout);
    receive_timeout_ = timeout;
  }

  const FrameLimits limits_;
  TcpStream stream_;
  ReceiveBuffer buffer_;      // body and beginning of the payload of the present frame, and what came behind
  std::size_t used_ = 0;      // of them: the body and what read_payload() has copied
  Nanos receive_timeout_{0};  // as set; 0: not yet
};

}  // namespace

std::unique_ptr<ClientWire> create_tcp_client_wire(TcpStream stream, const FrameLimits& limits) {
  return std::make_unique<TcpClientWire>(std::move(stream), limits);
}

}  // namespace nmc::net
