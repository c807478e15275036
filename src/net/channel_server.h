// The server's end of net/channel.h: takes connections on a Unix socket file, on a TCP port or on both, and has one
// handler answer their requests. Requests of one connection are handled one after another, in order; a client may send
// ahead. Connections are spread over event loops, each on its thread; Unix and TCP never share one, so that bulk bytes
// don't delay the small requests of the same host.
//
// A peer that breaks the protocol, stalls within a message or has no right to be here is closed with a line in the log.
// Every wait and every buffer is bounded by ChannelServerOptions.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "net/address.h"
#include "net/body.h"
#include "net/frame.h"
#include "net/message_counters.h"

namespace nmc::net {

class ServerWire;

// What a handler keeps of a connection.
struct SessionState {
  virtual ~SessionState() = default;
};

// One connection whose handshake is done. Belongs to its event loop: the handler's calls about it all come on that
// thread, one after another. Only close() and counters() may be used from elsewhere, between on_open and on_close.
class Session {
 public:
  struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
  };

  virtual ~Session() = default;
  virtual std::uint64_t id() const = 0;  // never used twice by a server
  virtual Carrier carrier() const = 0;
  virtual const std::optional<Peer>& peer() const = 0;  // Unix: as the kernel tells
  virtual const std::string& peer_name() const = 0;     // for messages: "10.0.0.7:41022", "process 17 of user 0"
  virtual const MessageCounters& counters() const = 0;
  // Ends the connection soon; a reply on its way may be lost. A handler at work on its request ends first: what it
  // waits for through Asio is cancelled (terminal).
  virtual void close() = 0;

  std::unique_ptr<SessionState> state;  // the handler's own, gone after on_close
};

// Lives during one MessageHandler::handle().
class Request {
 public:
  Request(const FrameHeader& header, ByteSpan body_bytes, ServerWire& wire);

  const std::uint16_t op;
  const std::uint64_t id;
  const std::uint64_t payload_bytes;  // behind the body, as the peer announced it
  BodyReader body;

  // The next bytes of the payload, straight into `to`, which is at most payload_left() long. Failing, it has ended the
  // connection: give back what was reserved and return. What is left unread when handle() returns is dropped.
  boost::asio::awaitable<Result<void>> read_payload(MutableByteSpan to);
  std::uint64_t payload_left() const { return payload_left_; }

 private:
  friend class ServerSession;
  ServerWire& wire_;
  std::uint64_t payload_left_;
  std::optional<Error> error_;  // of read_payload()
};

struct Reply {
  Reply() = default;
  Reply(Error failed) : error(std::move(failed)) {}  // NOLINT: `return Error{...}` reads well in a handler
  explicit Reply(BodyWriter writer) : body(std::move(writer).take()) {}

  std::optional<Error> error;  // set: the client gets this and nothing else
  std::vector<std::byte> body;
  std::vector<ByteSpan> payload;     // written from where it lies
  std::vector<int> fds;              // Unix only, at most kDatagramFdsMax; the receiver gets its own
  std::shared_ptr<void> keep_alive;  // what payload and fds belong to; released when the last byte is written, or lost
};

// Called on event loops, so on several threads at once for different sessions; must not block for long. Outlives the
// server.
class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  virtual void on_open(Session&) {}
  virtual void on_close(Session&) {}  // once for each on_open; no request of it is being handled any more
  // Doesn't throw. A reply that the carrier can't take (too large, fds over TCP) reaches the client as an error.
  virtual boost::asio::awaitable<Reply> handle(Session& session, Request& request) = 0;
};

struct ChannelServerOptions {
  std::string unix_path;  // "": no Unix socket. The file of a dead server is replaced
  mode_t unix_mode = 0600;
  std::string tcp_host;        // "": no TCP
  std::uint16_t tcp_port = 0;  // 0: any free one

  Path tls_cert, tls_key;  // PEM files, both or neither: TCP clients come inside TLS 1.3

  std::string token;           // asked of TCP clients and proven to them; "": none
  bool token_on_unix = false;  // asked there, too; else the file's mode is what keeps strangers out
  bool insecure = false;       // allows TCP beyond loopback without a token

  int unix_loops = 1, tcp_loops = 1;
  std::size_t connections_max = 4096;  // one more is told so and closed
  FrameLimits limits;                  // of requests
  Nanos handshake_deadline = std::chrono::seconds(5);
  Nanos progress_deadline = std::chrono::seconds(10);  // within a message, either way, without a byte moving
};

struct ChannelServerStats {
  std::size_t connections = 0;  // open now
  std::uint64_t accepted = 0;   // since start, refused ones included
  std::uint64_t refused = 0;    // beyond connections_max
};

// Thread-safe.
class ChannelServer {
 public:
  // Serves as soon as it returns. kAlreadyExists: path or port is taken by a live server; the message names it.
  // kPermissionDenied: TCP beyond loopback without a token. kInvalidArgument: certificate or key can't be used.
  static Result<std::unique_ptr<ChannelServer>> start(ChannelServerOptions options, MessageHandler& handler);
  // Closes all sessions as Session::close() does, waits for their handlers and removes the socket file.
  ~ChannelServer();
  ChannelServer(const ChannelServer&) = delete;
  ChannelServer& operator=(const ChannelServer&) = delete;

  std::uint16_t tcp_port() const;  // 0: no TCP
  ChannelServerStats stats() const;

 private:
  class Impl;
  explicit ChannelServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nmc::net
