#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "net/receive_buffer.h"
#include "net/server_wire.h"
#include "net/span_cursor.h"
#include "net/tcp_stream.h"
#include "net/tls.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;

// So much is moved before others on the loop have a turn: well below a millisecond.
constexpr std::size_t kTurnBytes = 1 << 20;
constexpr std::byte kTlsHandshakeByte{0x16};  // what a TLS client says first

class TcpServerWire final : public ServerWire {
 public:
  TcpServerWire(asio::io_context& loop, UniqueFd fd, const ServerWireOptions& options)
      : options_(options), stream_(std::move(fd)), ready_(loop, stream_.fd()) {
    TcpStream::tune(stream_.fd());
    TcpStream::tune_connected(stream_.fd());
  }

  asio::awaitable<Result<std::optional<Frame>>> receive(LoopTime first_byte, LoopTime whole) override {
    if (options_.tls != nullptr && !secured_) {
      Result<bool> secured = co_await secure(first_byte, whole);
      if (!secured) co_return Failure(std::move(secured).error());
      if (!*secured) co_return co_await refuse_plain(first_byte, whole);
    }
    co_return co_await receive_frame(first_byte, whole);
  }

  asio::awaitable<Result<void>> read_payload(MutableByteSpan to) override {
    to = to.subspan(take_buffered(to));
    std::size_t turn = 0;
    while (!to.empty()) {
      const iovec piece{to.data(), std::min(to.size(), kTurnBytes)};
      Result<std::size_t> count = co_await read_some(piece, LoopTime::max());
      if (!count) co_return Failure(std::move(count).error());
      to = to.subspan(*count);
      turn += *count;
      if (turn < kTurnBytes) continue;
      turn = 0;
      co_await yield_turn();
    }
    co_return Result<void>();
  }

  Result<void> check(const Outgoing& reply) const override {
    if (!reply.fds.empty()) return invalid_argument("descriptors can't be passed over TCP");
    if (reply.body.size() > options_.limits.body_bytes_max) {
      return invalid_argument("reply with a body of {} bytes, expected at most {}", reply.body.size(),
                              options_.limits.body_bytes_max);
    }
    return {};
  }

  asio::awaitable<Result<void>> send(const Outgoing& reply) override {
    const FrameHeaderBytes encoded = encode_frame_header(reply.header);
    const std::array<ByteSpan, 2> head{encoded, reply.body};
    SpanCursor<const std::byte> rest(head, reply.payload);
    std::size_t turn = 0;
    while (rest.left() > 0) {
      const StreamIo io = write_next(rest);
      if (io.would_block()) {
        Result<void> ready = co_await ready_.wait(ReadyFd::For::kWriting, loop_time_after(options_.progress_deadline));
        if (!ready) co_return Failure(std::move(ready).error());
        continue;
      }
      if (io.error_number != 0) co_return Failure(os_error("send", "to the peer", io.error_number));
      rest.advance(io.bytes);
      turn += io.bytes;
      if (turn < kTurnBytes) continue;
      turn = 0;
      co_await yield_turn();
    }
    co_return Result<void>();
  }

  void close() override { ready_.close(); }

 private:
  asio::awaitable<Result<std::optional<Frame>>> receive_frame(LoopTime first_byte, LoopTime whole) {
    buffer_.consume(std::exchange(used_, 0));
    if (buffer_.empty()) {
      Result<bool> begun = co_await begin(first_byte);
      if (!begun) co_return Failure(std::move(begun).error());
      if (!*begun) co_return std::optional<Frame>();
    }
    if (buffer_.size() < kFrameMagicBytes) {
      Result<void> filled = co_await fill(kFrameMagicBytes, whole);
      if (!filled) co_return Failure(std::move(filled).error());
    }
    if (options_.tls == nullptr && buffer_.bytes().front() == kTlsHandshakeByte)
      co_return unavailable("a client that speaks TLS, which this server doesn't: it has no certificate");
    Result<void> start = check_frame_start(buffer_.bytes());
    if (!start) co_return Failure(std::move(start).error());
    if (buffer_.size() < kFrameHeaderBytes) {
      Result<void> filled = co_await fill(kFrameHeaderBytes, whole);
      if (!filled) co_return Failure(std::move(filled).error());
    }
    Result<FrameHeader> header = decode_frame_header(buffer_.bytes().first<kFrameHeaderBytes>(), options_.limits);
    if (!header) co_return Failure(std::move(header).error());
    buffer_.consume(kFrameHeaderBytes);
    if (buffer_.size() < header->body_bytes) {
      Result<void> filled = co_await fill(header->body_bytes, whole);
      if (!filled) co_return Failure(std::move(filled).error());
    }
    used_ = header->body_bytes;
    co_return Frame{.header = *header, .body = buffer_.bytes().first(used_), .payload = {}};
  }

  // False: the peer's first byte is none of TLS but one of ours.
  asio::awaitable<Result<bool>> secure(LoopTime first_byte, LoopTime whole) {
    std::byte first{};
    while (::recv(stream_.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
      if (errno != EAGAIN) co_return Failure(os_error("receive", "from the peer"));
      Result<void> ready = co_await ready_.wait(ReadyFd::For::kReading, first_byte);
      if (!ready) co_return Failure(std::move(ready).error());
    }
    if (check_frame_start({&first, 1})) co_return false;
    Result<std::unique_ptr<TlsSession>> session = TlsSession::create(*options_.tls, stream_.fd(), "");
    if (!session) co_return Failure(std::move(session).error());
    for (;;) {
      const Result<TlsSession::Step> step = (*session)->shake_hands();
      if (!step) co_return Failure(step.error());
      if (*step == TlsSession::Step::kDone) break;
      const auto what = *step == TlsSession::Step::kWantsRead ? ReadyFd::For::kReading : ReadyFd::For::kWriting;
      Result<void> ready = co_await ready_.wait(what, whole);
      if (!ready) co_return Failure(std::move(ready).error());
    }
    stream_.secure(*std::move(session));
    secured_ = true;
    co_return true;
  }

  // Its message is taken first: a connection that is closed with something unread loses what was sent last.
  asio::awaitable<Result<std::optional<Frame>>> refuse_plain(LoopTime first_byte, LoopTime whole) {
    Result<std::optional<Frame>> frame = co_await receive_frame(first_byte, whole);
    if (!frame || !*frame) co_return frame;
    co_return failure(ErrorCode::kPermissionDenied,
                      "the server wants TLS: set {} to the file of the authority that signed its certificate",
                      kTlsVariable);
  }

  // What came along behind the body, which must stay where it is.
  std::size_t take_buffered(MutableByteSpan to) {
    const ByteSpan buffered = buffer_.bytes().subspan(used_);
    const std::size_t count = std::min(to.size(), buffered.size());
    std::copy_n(buffered.begin(), count, to.begin());
    used_ += count;
    return count;
  }

  StreamIo write_next(const SpanCursor<const std::byte>& rest) {
    Iovecs pieces;
    return stream_.write(rest.next(pieces, kTurnBytes));
  }

  // Waits for a frame's first bytes. False: the peer has closed. Waiting comes first: asking first would mostly be in
  // vain, since a client that has its reply is only now making up its next request.
  asio::awaitable<Result<bool>> begin(LoopTime deadline) {
    for (bool pending = stream_.has_pending();; pending = false) {
      if (!pending) {
        Result<void> ready = co_await ready_.wait(ReadyFd::For::kReading, deadline);
        if (!ready) co_return Failure(std::move(ready).error());
      }
      const MutableByteSpan room = buffer_.prepare(kFrameHeaderBytes);
      const iovec piece{room.data(), room.size()};
      const StreamIo io = stream_.read({&piece, 1});
      buffer_.commit(io.bytes);
      if (io.error_number == 0) co_return io.bytes > 0;
      if (!io.would_block()) co_return Failure(os_error("receive", "from the peer", io.error_number));
    }
  }

  asio::awaitable<Result<void>> fill(std::size_t bytes, LoopTime whole) {
    while (buffer_.size() < bytes) {
      const MutableByteSpan room = buffer_.prepare(bytes);
      const iovec piece{room.data(), room.size()};
      Result<std::size_t> count = co_await read_some(piece, whole);
      if (!count) co_return Failure(std::move(count).error());
      buffer_.commit(*count);
    }
    co_return Result<void>();
  }

  // At least one byte, within a frame.
  asio::awaitable<Result<std::size_t>> read_some(iovec to, LoopTime whole) {
    for (;;) {
      const StreamIo io = stream_.read({&to, 1});
      if (io.bytes > 0) co_return io.bytes;
      if (io.error_number == 0) co_return unavailable("the peer closed the connection within a message");
      if (!io.would_block()) co_return Failure(os_error("receive", "from the peer", io.error_number));
      const LoopTime deadline = std::min(loop_time_after(options_.progress_deadline), whole);
      Result<void> ready = co_await ready_.wait(ReadyFd::For::kReading, deadline);
      if (!ready) co_return Failure(std::move(ready).error());
    }
  }

  const ServerWireOptions options_;
  bool secured_ = false;
  TcpStream stream_;
  ReadyFd ready_;
  ReceiveBuffer buffer_;  // body and beginning of the payload of the present frame, and what came behind
  std::size_t used_ = 0;  // of them: the body and what read_payload() has copied
};

}  // namespace

std::unique_ptr<ServerWire> create_tcp_server_wire(asio::io_context& loop, UniqueFd fd,
                                                   const ServerWireOptions& options) {
  return std::make_unique<TcpServerWire>(loop, std::move(fd), options);
}

}  // namespace nmc::net
