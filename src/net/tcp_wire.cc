#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "net/receive_buffer.h"
#include "net/socket_options.h"
#include "net/span_cursor.h"
#include "net/tcp_stream.h"
#include "net/wire.h"

namespace nmc::net {
namespace {

class TcpWire final : public Wire {
 public:
  TcpWire(UniqueFd fd, const FrameLimits& limits) : limits_(limits), stream_(std::move(fd)) {}

  Result<void> send(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload,
                    const Patience& patience) override {
    const FrameHeaderBytes encoded = encode_frame_header(header);
    const std::array<ByteSpan, 2> head{encoded, body};
    SpanCursor<const std::byte> rest(head, payload);
    while (rest.left() > 0) {
      const StreamIo io = stream_.write(rest.next());
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
    copy_buffered(rest);
    while (rest.left() > 0) {
      NMC_ASSIGN_OR_RETURN(const std::size_t count, read_some(rest.next(), rest.left(), patience));
      rest.advance(count);
    }
    return {};
  }

  void shut() override { ::shutdown(stream_.fd(), SHUT_RDWR); }

 private:
  // What came along behind the body, which must stay where it is.
  void copy_buffered(SpanCursor<std::byte>& rest) {
    while (rest.left() > 0 && used_ < buffer_.size()) {
      const ByteSpan buffered = buffer_.bytes().subspan(used_);
      const iovec piece = rest.next(buffered.size()).front();
      std::memcpy(piece.iov_base, buffered.data(), piece.iov_len);
      used_ += piece.iov_len;
      rest.advance(piece.iov_len);
    }
  }

  Result<void> fill(std::size_t bytes, const Patience& patience) {
    while (buffer_.size() < bytes) {
      const MutableByteSpan room = buffer_.prepare(bytes);
      const iovec piece{room.data(), room.size()};
      NMC_ASSIGN_OR_RETURN(const std::size_t count, read_some({&piece, 1}, bytes - buffer_.size(), patience));
      buffer_.commit(count);
    }
    return {};
  }

  // At least one byte. `missing` is for the message.
  Result<std::size_t> read_some(std::span<const iovec> to, std::uint64_t missing, const Patience& patience) {
    const Wait wait(patience);
    Nanos left = patience.until == Nanos::max() ? patience.progress : wait.left();
    while (left > Nanos::zero()) {
      set_receive_timeout(left);
      const StreamIo io = stream_.read(to);
      if (io.bytes > 0) return io.bytes;
      if (io.error_number == 0) return unavailable("the peer closed the connection with {} bytes to come", missing);
      if (io.would_block()) return wait.over();
      if (io.error_number != EINTR) return Failure(os_error("receive", "from the peer", io.error_number));
      left = wait.left();
    }
    return wait.over();
  }

  Result<void> wait_writable(const Patience& patience) {
    const Wait wait(patience);
    for (Nanos left = wait.left(); left > Nanos::zero(); left = wait.left()) {
      const timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
      pollfd poll{.fd = stream_.fd(), .events = POLLOUT, .revents = 0};
      const int ready = ::ppoll(&poll, 1, &timeout, nullptr);
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return Failure(os_error("poll", "the peer"));
    }
    return wait.over();
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

std::unique_ptr<Wire> create_tcp_wire(UniqueFd fd, const FrameLimits& limits) {
  return std::make_unique<TcpWire>(std::move(fd), limits);
}

}  // namespace nmc::net
