#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "net/client_wire.h"
#include "net/datagram.h"
#include "net/socket_options.h"
#include "net/span_cursor.h"
#include "net/spin.h"

namespace nmc::net {
namespace {

class UnixClientWire final : public ClientWire {
 public:
  explicit UnixClientWire(UniqueFd fd)
      : fd_(std::move(fd)), buffer_(std::make_unique_for_overwrite<std::byte[]>(kDatagramBytesMax)) {}

  Result<void> send(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload,
                    const Patience& patience) override {
    const DatagramToSend datagram(header, body, payload, {});
    Wait wait(patience);
    for (; !wait.over(); wait.interrupted()) {
      set_wait(SO_SNDTIMEO, send_timeout_, wait.left());
      if (::sendmsg(fd_.get(), &datagram.message(), MSG_NOSIGNAL) >= 0) return {};
      if (errno == EAGAIN) break;
      if (errno != EINTR) return Failure(os_error("send", "to the peer"));
    }
    return wait.failure();
  }

  Result<Received> receive(const Patience& patience) override {
    payload_ = {};
    ReceivedDatagram datagram({buffer_.get(), kDatagramBytesMax});
    NMC_RETURN_IF_ERROR(receive_datagram(datagram, patience));
    NMC_ASSIGN_OR_RETURN(const ByteSpan bytes, datagram.bytes());
    NMC_ASSIGN_OR_RETURN(Frame frame, split_datagram(bytes));
    payload_ = frame.payload;
    return Received{.frame = frame, .fds = datagram.take_fds()};
  }

  Result<void> read_payload(std::span<const MutableByteSpan> to, std::uint64_t bytes, const Patience&) override {
    SpanCursor<std::byte> rest(to);
    NMC_ASSERT(rest.left() >= bytes && payload_.size() >= bytes, "room={} bytes={}", rest.left(), bytes);
    rest.limit(bytes);
    payload_ = payload_.subspan(rest.take(payload_));
    return {};
  }

  void shut() override { ::shutdown(fd_.get(), SHUT_RDWR); }

 private:
  Result<void> receive_datagram(ReceivedDatagram& datagram, const Patience& patience) {
    ssize_t count = -1;
    const auto look = [&] {
      count = ::recvmsg(fd_.get(), &datagram.message(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      return count >= 0 || (errno != EAGAIN && errno != EINTR);
    };
    bool here = spin_.catches(look);
    Wait wait(patience);
    for (; !wait.over(); wait.interrupted()) {
      if (!std::exchange(here, false)) {
        set_wait(SO_RCVTIMEO, receive_timeout_, wait.left());
        count = ::recvmsg(fd_.get(), &datagram.message(), MSG_CMSG_CLOEXEC);
      }
      if (count > 0) {
        datagram.received(static_cast<std::size_t>(count));
        return {};
      }
      if (count == 0) return unavailable("the peer closed the connection");
      if (errno == EAGAIN) break;
      if (errno != EINTR) return Failure(os_error("receive", "from the peer"));
    }
    return wait.failure();
  }

  void set_wait(int option, Nanos& present, Nanos wanted) {
    if (wanted != present) set_timeout(fd_.get(), option, wanted);
    present = wanted;
  }

  UniqueFd fd_;
  std::unique_ptr<std::byte[]> buffer_;         // one datagram; pages of it that none ever reached cost nothing
  ByteSpan payload_;                            // what of it is still to be read
  Nanos send_timeout_{0}, receive_timeout_{0};  // as set; 0: not yet
  Spin spin_;                                   // for replies
};

}  // namespace

std::unique_ptr<ClientWire> create_unix_client_wire(UniqueFd fd) {
  return std::make_unique<UnixClientWire>(std::move(fd));
}

}  // namespace nmc::net
