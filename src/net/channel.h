// The client's end of a connection to a server of ours: sends requests, waits for their replies. Blocks; needs no event
// loop and starts no thread (but for the look-up of a host name), so that it can live in anybody's process.
//
// Not thread-safe: one thread at a time uses a channel; only interrupt() and counters() may be called beside it. Its
// descriptor is close-on-exec; a forked child must leave the channel alone.
//
// Errors are of two kinds. What the server answered, and what was wrong with a request before any of it was sent,
// leaves the channel as it was. Everything else (a peer that is gone, stalls or lies) closes it: usable() is false from
// then on, and every call fails with kUnavailable and the first reason.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"
#include "net/address.h"
#include "net/body.h"
#include "net/frame.h"
#include "net/message_counters.h"

namespace nmc::net {

class ClientWire;

struct ChannelOptions {
  std::string token;  // proven to the server, which proves it, too; "": none
  // TCP inside TLS 1.3: the file of the authorities (PEM) by which the server's certificate must be signed; it must
  // name the address's host, too. "": without TLS. Unix sockets need none.
  Path tls_ca;
  Nanos connect_deadline = std::chrono::seconds(2);  // in all: name, connection, handshake
  // A call fails when no byte moves for so long: none of a request is taken, none of a reply comes. Hence also the time
  // that the server has for an answer. A slow peer that advances isn't cut off.
  Nanos progress_deadline = std::chrono::seconds(10);
  FrameLimits limits;
};

class Channel {
 public:
  // Connects and shakes hands. kUnavailable: nobody is there, or a stranger; kDeadlineExceeded: silence;
  // kVersionMismatch names both versions; kPermissionDenied: the token is missing or wrong. A channel with a token
  // refuses a TCP server that asks for none: it could be anybody. On a Unix socket the file's owner vouches for it.
  // With tls_ca, kPermissionDenied also tells of a certificate that doesn't pass, kInvalidArgument of a file that is
  // none.
  static Result<std::unique_ptr<Channel>> connect(const Address& address, ChannelOptions options = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  struct Request {
    std::uint16_t op = 0;                    // below kReservedOps
    ByteSpan body;                           // at most limits.body_bytes_max
    std::span<const ByteSpan> payload = {};  // written from where it lies
  };
  struct Reply {
    ByteSpan body;  // until the next call on this channel
    std::uint64_t payload_bytes = 0;
    std::vector<UniqueFd> fds;

    BodyReader reader() const { return BodyReader(body); }
  };
  // Where a reply's payload goes. Called once per reply that has one, before any byte of it is read, with the reply's
  // body. The answer's spans must hold at least `payload_bytes`, and their first ones are filled; they and the list
  // stay until the call is over. An error refuses the payload and becomes the call's: a payload of up to kSkipBytesMax
  // is then read and dropped, a larger one costs the channel.
  using PlacePayload =
      std::function<Result<std::span<const MutableByteSpan>>(ByteSpan body, std::uint64_t payload_bytes)>;
  static constexpr std::uint64_t kSkipBytesMax = 1 << 20;

  // send() and receive() of one request, none being in flight. Without `place` a payload is refused. `progress`:
  // instead of options.progress_deadline, for a request that may take longer; 0: the same.
  Result<Reply> call(const Request& request, const PlacePayload& place = nullptr, Nanos progress = Nanos::zero());

  // The same in two, so that several requests can be under way: the server answers them in order. It stops reading
  // while nobody takes its replies, and send() waits for it to read: so have no more in flight than socket buffers
  // hold (some hundred small messages), and send no large payload while large replies are due.
  Result<void> send(const Request& request, Nanos progress = Nanos::zero());
  // The reply to the oldest request in flight; there must be one.
  Result<Reply> receive(const PlacePayload& place = nullptr, Nanos progress = Nanos::zero());
  std::size_t in_flight() const { return in_flight_.size(); }

  bool usable() const { return !broken_; }
  // Ends what another thread waits for on this channel, and the channel with it. Thread-safe.
  void interrupt();

  Carrier carrier() const { return address_.carrier; }
  const Address& address() const { return address_; }
  const MessageCounters& counters() const { return counters_; }

 private:
  struct InFlight {
    std::uint64_t id;
    std::uint16_t op;
  };

  Channel(Address address, ChannelOptions options, std::unique_ptr<ClientWire> wire);
  Result<void> check(const Request& request) const;
  Result<void> check_is_reply_to(const FrameHeader& header, const InFlight& request) const;
  // Into where `place` says; an error leaves the channel usable if the payload could be dropped.
  Result<void> take_payload(ByteSpan body, std::uint64_t bytes, const PlacePayload& place, Nanos progress);
  void skip_payload(std::uint64_t bytes, Nanos progress);
  Failure still_broken() const;
  Failure broke(Error error);  // closes the channel and passes `error` on
  Nanos patience(Nanos progress) const { return progress > Nanos::zero() ? progress : options_.progress_deadline; }

  const Address address_;
  const ChannelOptions options_;
  const std::unique_ptr<ClientWire> wire_;
  MessageCounters counters_;
  std::deque<InFlight> in_flight_;  // oldest first
  std::uint64_t next_id_ = 1;
  std::optional<Error> broken_;
  std::atomic<bool> interrupted_{false};
};

// The usual PlacePayload: into `spans`, refused if it is larger than they are. `spans` outlives the call.
Channel::PlacePayload place_into(std::span<const MutableByteSpan> spans);

}  // namespace nmc::net
