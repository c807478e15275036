#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "net/datagram.h"
#include "net/server_wire.h"
#include "net/socket_options.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;

class UnixServerWire final : public ServerWire {
 public:
  UnixServerWire(asio::io_context& loop, UniqueFd fd, const ServerWireOptions& options)
      : options_(options),
        fd_(std::move(fd)),
        ready_(loop, fd_.get()),
        buffer_(std::make_unique_for_overwrite<std::byte[]>(kDatagramBytesMax)) {
    hold_datagrams(fd_.get());
  }

  asio::awaitable<Result<std::optional<Frame>>> receive(LoopTime first_byte, LoopTime) override {
    for (;;) {
      // Waiting comes first: asking first would mostly be in vain, since a client that has its reply is only now
      // making up its next request.
      Result<void> ready = co_await ready_.wait(ReadyFd::For::kReading, first_byte);
      if (!ready) co_return Failure(std::move(ready).error());
      // With MSG_TRUNC it tells the datagram's size even if there was no room for it. Descriptors that a peer attaches
      // are dropped by the kernel, for want of a place to put them.
      const ssize_t count = ::recv(fd_.get(), buffer_.get(), kDatagramBytesMax, MSG_DONTWAIT | MSG_TRUNC);
      if (count > 0) co_return open_datagram(static_cast<std::size_t>(count));
      if (count == 0) co_return std::optional<Frame>();
      if (errno != EAGAIN) co_return Failure(os_error("receive", "from the peer"));
    }
  }

  asio::awaitable<Result<void>> read_payload(MutableByteSpan to) override {
    NMC_ASSERT(to.size() <= payload_.size(), "to={} payload={}", to.size(), payload_.size());
    if (!to.empty()) std::memcpy(to.data(), payload_.data(), to.size());
    payload_ = payload_.subspan(to.size());
    co_return Result<void>();
  }

  Result<void> check(const Outgoing& reply) const override {
    if (reply.fds.size() > kDatagramFdsMax) {
      return invalid_argument("reply with {} descriptors, expected at most {}", reply.fds.size(), kDatagramFdsMax);
    }
    return check_datagram_size(reply.body, reply.payload);
  }

  asio::awaitable<Result<void>> send(const Outgoing& reply) override {
    for (;;) {
      const int error = try_send(reply);
      if (error == 0) co_return Result<void>();
      if (error != EAGAIN) co_return Failure(os_error("send", "to the peer", error));
      Result<void> ready = co_await ready_.wait(ReadyFd::For::kWriting, loop_time_after(options_.progress_deadline));
      if (!ready) co_return Failure(std::move(ready).error());
    }
  }

  void close() override { ready_.close(); }

 private:
  Result<std::optional<Frame>> open_datagram(std::size_t size) {
    if (size > kDatagramBytesMax) {
      return corrupt("message of {} bytes, expected at most {}", size, kDatagramBytesMax);
    }
    NMC_ASSIGN_OR_RETURN(const Frame frame, split_datagram(ByteSpan(buffer_.get(), size)));
    payload_ = frame.payload;
    return frame;
  }

  int try_send(const Outgoing& reply) const {
    const DatagramToSend datagram(reply.header, reply.body, reply.payload, reply.fds);
    return ::sendmsg(fd_.get(), &datagram.message(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : errno;
  }

  const ServerWireOptions options_;
  UniqueFd fd_;
  ReadyFd ready_;
  std::unique_ptr<std::byte[]> buffer_;  // one datagram; pages of it that none ever reached cost nothing
  ByteSpan payload_;                     // what of it is still to be read
};

}  // namespace

std::unique_ptr<ServerWire> create_unix_server_wire(asio::io_context& loop, UniqueFd fd,
                                                    const ServerWireOptions& options) {
  return std::make_unique<UnixServerWire>(loop, std::move(fd), options);
}

}  // namespace nmc::net
