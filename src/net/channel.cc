#include "net/channel.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "net/client_handshake.h"
#include "net/client_wire.h"
#include "net/dial.h"
#include "net/tls_connect.h"

namespace nmc::net {

Result<std::unique_ptr<Channel>> Channel::connect(const Address& address, ChannelOptions options) {
  const Nanos until = real_clock().now() + options.connect_deadline;
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, dial(address, until));
  std::unique_ptr<ClientWire> wire;
  if (address.carrier == Carrier::kUnix) {
    wire = create_unix_client_wire(std::move(fd));
  } else {
    TcpStream stream(std::move(fd));
    if (!options.tls_ca.empty()) NMC_RETURN_IF_ERROR(secure_client(stream, address, options.tls_ca, until));
    wire = create_tcp_client_wire(std::move(stream), options.limits);
  }
  NMC_RETURN_IF_ERROR(shake_hands_with_server(*wire, address, options.token, until));
  return std::unique_ptr<Channel>(new Channel(address, std::move(options), std::move(wire)));
}

Channel::Channel(Address address, ChannelOptions options, std::unique_ptr<ClientWire> wire)
    : address_(std::move(address)), options_(std::move(options)), wire_(std::move(wire)) {}

Channel::~Channel() = default;

Result<Channel::Reply> Channel::call(const Request& request, const PlacePayload& place, Nanos progress) {
  NMC_REQUIRE(broken_ || in_flight_.empty(), "in_flight={}", in_flight_.size());
  NMC_RETURN_IF_ERROR(send(request, progress));
  return receive(place, progress);
}

Result<void> Channel::check(const Request& request) const {
  NMC_REQUIRE(request.op < kReservedOps, "op={}", request.op);
  if (request.body.size() > options_.limits.body_bytes_max) {
    return invalid_argument("request with a body of {} bytes, expected at most {}", request.body.size(),
                            options_.limits.body_bytes_max);
  }
  if (carrier() == Carrier::kUnix) return check_datagram_size(request.body, request.payload);
  return {};
}

Result<void> Channel::send(const Request& request, Nanos progress) {
  if (broken_) return still_broken();
  NMC_RETURN_IF_ERROR(check(request));
  if (auto hit = failpoint("net.send")) return broke(*std::move(hit));
  const FrameHeader header{.op = request.op,
                           .body_bytes = static_cast<std::uint32_t>(request.body.size()),
                           .request_id = next_id_++,
                           .payload_bytes = total_bytes(request.payload)};
  Result<void> sent = wire_->send(header, request.body, request.payload, {.progress = patience(progress)});
  if (!sent) return broke(std::move(sent).error());
  counters_.count_sent(header.payload_bytes);
  in_flight_.push_back({.id = header.request_id, .op = request.op});
  return {};
}

Result<Channel::Reply> Channel::receive(const PlacePayload& place, Nanos progress) {
  if (broken_) return still_broken();
  NMC_REQUIRE(!in_flight_.empty());
  if (auto hit = failpoint("net.receive")) return broke(*std::move(hit));
  Result<ClientWire::Received> received = wire_->receive({.progress = patience(progress)});
  if (!received) return broke(std::move(received).error());
  const FrameHeader& header = received->frame.header;
  const ByteSpan body = received->frame.body;
  if (Result<void> ours = check_is_reply_to(header, in_flight_.front()); !ours) return broke(std::move(ours).error());
  in_flight_.pop_front();
  if (header.status == FrameStatus::kError) {
    counters_.count_received(0);
    return Failure(decode_error(body));
  }
  if (header.payload_bytes > 0) NMC_RETURN_IF_ERROR(take_payload(body, header.payload_bytes, place, progress));
  counters_.count_received(header.payload_bytes);
  return Reply{.body = body, .payload_bytes = header.payload_bytes, .fds = std::move(received->fds)};
}

Result<void> Channel::check_is_reply_to(const FrameHeader& header, const InFlight& request) const {
  if (header.request_id == request.id && header.op == request.op) return {};
  return corrupt("the peer answered request {} of op {}, expected {} of op {}", header.request_id, header.op,
                 request.id, request.op);
}

Result<void> Channel::take_payload(ByteSpan body, std::uint64_t bytes, const PlacePayload& place, Nanos progress) {
  const auto put = [&]() -> Result<std::span<const MutableByteSpan>> {
    if (!place) return invalid_argument("the reply has a payload of {} bytes, the caller expected none", bytes);
    NMC_ASSIGN_OR_RETURN(const std::span<const MutableByteSpan> spans, place(body, bytes));
    std::uint64_t room = 0;
    for (const MutableByteSpan span : spans) room += span.size();
    NMC_REQUIRE(room >= bytes, "room={} payload_bytes={}", room, bytes);
    return spans;
  };
  Result<std::span<const MutableByteSpan>> spans = put();
  if (!spans) {
    skip_payload(bytes, progress);
    return Failure(std::move(spans).error());
  }
  Result<void> read = wire_->read_payload(*spans, bytes, {.progress = patience(progress)});
  if (!read) return broke(std::move(read).error());
  return {};
}

void Channel::skip_payload(std::uint64_t bytes, Nanos progress) {
  if (bytes > kSkipBytesMax) {
    (void)broke(Error{ErrorCode::kCancelled, fmt::format("the caller refused a payload of {} bytes", bytes)});
    return;
  }
  std::vector<std::byte> dropped(bytes);
  const MutableByteSpan to(dropped);
  Result<void> read = wire_->read_payload({&to, 1}, bytes, {.progress = patience(progress)});
  if (!read) (void)broke(std::move(read).error());
}

void Channel::interrupt() {
  interrupted_.store(true, std::memory_order_release);  // pairs with the load in broke()
  wire_->shut();
}

Failure Channel::still_broken() const {
  return unavailable("the channel was closed by an earlier error: {}", broken_->message);
}

Failure Channel::broke(Error error) {
  if (interrupted_.load(std::memory_order_acquire)) error = Error{ErrorCode::kCancelled, "interrupted"};
  broken_ = std::move(error).with_context(address_.to_string());
  in_flight_.clear();
  wire_->shut();
  return Failure(*broken_);
}

Channel::PlacePayload place_into(std::span<const MutableByteSpan> spans) {
  return [spans](ByteSpan, std::uint64_t bytes) -> Result<std::span<const MutableByteSpan>> {
    std::uint64_t room = 0;
    for (const MutableByteSpan span : spans) room += span.size();
    if (room < bytes) return invalid_argument("a reply of {} bytes doesn't fit into {}", bytes, room);
    return spans;
  };
}

}  // namespace nmc::net
