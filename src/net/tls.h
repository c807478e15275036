// Internal to net: TLS 1.3 under the frames of a TCP connection. The server shows a certificate, the client checks it
// against one file of authorities and against the host that it asked for; who the client is, the token tells.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "net/tcp_stream.h"

struct ssl_st;
struct ssl_ctx_st;

namespace nmc::net {

// Named in errors, so that people know what to set; nothing in net reads the environment.
constexpr std::string_view kTlsVariable = "NANO_MOONCAKE_TLS_CA";

// What the connections of one side share. Thread-safe.
class TlsContext {
 public:
  // PEM files: the certificate, with those that lead to its authority behind it, and its key. kInvalidArgument: one
  // can't be read, is no such thing, or they don't belong together; the message names the file.
  static Result<std::shared_ptr<const TlsContext>> for_server(const Path& certificate, const Path& key);
  // The certificates of the authorities that are trusted; or the server's own one, if it signed itself.
  static Result<std::shared_ptr<const TlsContext>> for_client(const Path& authorities);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  TlsContext(ssl_ctx_st* context, bool server) : context_(context), server_(server) {}
  ssl_ctx_st* const context_;
  const bool server_;
};

// One connection. Not thread-safe. After a failure it isn't used again.
class TlsSession {
 public:
  // On a connected socket, which outlives this. `host`: what the client asked for, by which the server must be named in
  // its certificate; a server gives "".
  static Result<std::unique_ptr<TlsSession>> create(const TlsContext& context, int fd, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // A step of the handshake, which never waits: done, or what to wait for before the next one. kPermissionDenied: the
  // server isn't who it should be; kUnavailable: whatever else, a peer that doesn't speak TLS above all.
  enum class Step { kDone, kWantsRead, kWantsWrite };
  Result<Step> shake_hands();

  // As TcpStream's, of what is inside. What can't be deciphered is EBADMSG.
  StreamIo read(std::span<const iovec> to);
  StreamIo write(std::span<const iovec> from);
  // There may be something to read although the socket has nothing.
  bool has_pending() const;

 private:
  struct Transport;

  TlsSession(ssl_st* ssl, std::unique_ptr<Transport> transport, bool server);
  StreamIo io_of(int returned);
  Failure handshake_failure() const;

  ssl_st* const ssl_;
  const std::unique_ptr<Transport> transport_;
  const bool server_;
  std::vector<std::byte> staged_;  // of write(): small pieces, joined to one record
};

}  // namespace nmc::net
