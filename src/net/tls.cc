#include "net/tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace nmc::net {
namespace {

constexpr std::size_t kRecordBytes = 16 << 10;      // the most that one takes
constexpr std::size_t kReadAheadBytes = 256 << 10;  // several records a system call
constexpr std::uint64_t kFileBytesMax = 1 << 20;

// The innermost reason that OpenSSL has for this thread's last failure.
std::string last_reason() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* text = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return text == nullptr ? "no reason given" : text;
}

struct CloseContext {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};
using OwnedContext = std::unique_ptr<SSL_CTX, CloseContext>;

Result<OwnedContext> new_context(const SSL_METHOD* method) {
  ::ERR_clear_error();
  OwnedContext context(::SSL_CTX_new(method));
  if (context == nullptr || ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1)
    return failure(ErrorCode::kInternal, "TLS: {}", last_reason());
  // Nobody resumes, and messages tell themselves where they end.
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(context.get(), 0);
  ::SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  ::SSL_CTX_set_mode(context.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_read_ahead(context.get(), 1);
  ::SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  // A key with a pass phrase is refused: there is nobody to ask.
  ::SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return -1; });
  return context;
}

// Our own messages for what can be told by opening it.
Result<void> check_readable(const Path& file, std::string_view what) {
  const auto read = read_file(file, kFileBytesMax);
  if (!read) return invalid_argument("TLS: {}: {}", what, read.error().message);
  return {};
}

bool is_numeric(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

}  // namespace

// ---- contexts ----

Result<std::shared_ptr<const TlsContext>> TlsContext::for_server(const Path& certificate, const Path& key) {
  NMC_RETURN_IF_ERROR(check_readable(certificate, "certificate"));
  NMC_RETURN_IF_ERROR(check_readable(key, "key"));
  NMC_ASSIGN_OR_RETURN(OwnedContext context, new_context(::TLS_server_method()));
  if (::SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1)
    return invalid_argument("TLS: {} is no certificate in PEM form: {}", certificate.string(), last_reason());
  // Whether it belongs to the certificate is asked by itself, so that the message is ours.
  if (::SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    const unsigned long code = ::ERR_peek_last_error();
    if (ERR_GET_REASON(code) != X509_R_KEY_VALUES_MISMATCH && ERR_GET_REASON(code) != X509_R_KEY_TYPE_MISMATCH)
      return invalid_argument("TLS: {} is no key in PEM form without a pass phrase: {}", key.string(), last_reason());
  }
  if (::SSL_CTX_check_private_key(context.get()) != 1) {
    ::ERR_clear_error();
    return invalid_argument("TLS: the key {} isn't that of the certificate {}", key.string(), certificate.string());
  }
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release(), true));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::for_client(const Path& authorities) {
  NMC_RETURN_IF_ERROR(check_readable(authorities, "authorities"));
  NMC_ASSIGN_OR_RETURN(OwnedContext context, new_context(::TLS_client_method()));
  if (::SSL_CTX_load_verify_file(context.get(), authorities.c_str()) != 1)
    return invalid_argument("TLS: {} has no certificate in PEM form: {}", authorities.string(), last_reason());
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release(), false));
}

TlsContext::~TlsContext() { ::SSL_CTX_free(context_); }

// ---- the socket below, as OpenSSL sees it ----

// OpenSSL's own would raise SIGPIPE, and wait where we don't.
struct TlsSession::Transport {
  explicit Transport(int descriptor) : fd(descriptor) {}

  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* own = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nmc socket");
      ::BIO_meth_set_read_ex(own, receive);
      ::BIO_meth_set_write_ex(own, send);
      ::BIO_meth_set_ctrl(own, [](BIO* bio, int command, long, void*) -> long {
        if (command == BIO_CTRL_EOF) return static_cast<Transport*>(::BIO_get_data(bio))->ended;
        return command == BIO_CTRL_FLUSH;
      });
      return own;
    }();
    return made;
  }

  static int moved(BIO* bio, ssize_t count, int retry_flag, std::size_t* bytes) {
    Transport& self = *static_cast<Transport*>(::BIO_get_data(bio));
    ::BIO_clear_retry_flags(bio);
    self.error_number = count < 0 ? errno : 0;
    if (count > 0) {
      *bytes = static_cast<std::size_t>(count);
      return 1;
    }
    *bytes = 0;
    const int error = self.error_number;
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)
      ::BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY | retry_flag);
    if (count == 0) self.ended = true;
    return 0;
  }
  static int receive(BIO* bio, char* to, std::size_t size, std::size_t* bytes) {
    const Transport& self = *static_cast<Transport*>(::BIO_get_data(bio));
    return moved(bio, ::recv(self.fd, to, size, self.waits ? 0 : MSG_DONTWAIT), BIO_FLAGS_READ, bytes);
  }
  static int send(BIO* bio, const char* from, std::size_t size, std::size_t* bytes) {
    const Transport& self = *static_cast<Transport*>(::BIO_get_data(bio));
    return moved(bio, ::send(self.fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL), BIO_FLAGS_WRITE, bytes);
  }

  const int fd;
  bool waits = false;    // for something to receive, if the socket is a blocking one
  bool ended = false;    // the peer has closed
  int error_number = 0;  // of the last call
};

// ---- sessions ----

TlsSession::TlsSession(SSL* ssl, std::unique_ptr<Transport> transport, bool server)
    : ssl_(ssl), transport_(std::move(transport)), server_(server) {}

TlsSession::~TlsSession() { ::SSL_free(ssl_); }

Result<std::unique_ptr<TlsSession>> TlsSession::create(const TlsContext& context, int fd, const std::string& host) {
  ::ERR_clear_error();
  SSL* const ssl = ::SSL_new(context.context_);
  BIO* const bio = ssl == nullptr ? nullptr : ::BIO_new(Transport::method());
  auto transport = std::make_unique<Transport>(fd);
  if (bio == nullptr) {
    ::SSL_free(ssl);
    return failure(ErrorCode::kResourceExhausted, "TLS: {}", last_reason());
  }
  ::BIO_set_data(bio, transport.get());
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl, bio, bio);
  std::unique_ptr<TlsSession> session(new TlsSession(ssl, std::move(transport), context.server_));
  if (context.server_) {
    ::SSL_set_accept_state(ssl);
    return session;
  }
  ::SSL_set_connect_state(ssl);
  ::SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool named =
      is_numeric(host) ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl), host.c_str()) == 1
                       : ::SSL_set1_host(ssl, host.c_str()) == 1 && ::SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!named) return invalid_argument("TLS: \"{}\" is no host that a certificate can name: {}", host, last_reason());
  return session;
}

Result<TlsSession::Step> TlsSession::shake_hands() {
  ::ERR_clear_error();
  const int returned = ::SSL_do_handshake(ssl_);
  if (returned == 1) {
    transport_->waits = true;
    return Step::kDone;
  }
  switch (::SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ: return Step::kWantsRead;
    case SSL_ERROR_WANT_WRITE: return Step::kWantsWrite;
    default: return handshake_failure();
  }
}

Failure TlsSession::handshake_failure() const {
  const long verified = ::SSL_get_verify_result(ssl_);
  if (!server_ && verified != X509_V_OK) {
    ::ERR_clear_error();
    return failure(ErrorCode::kPermissionDenied,
                   "TLS: the server's certificate doesn't pass: {}; is {} the file of its authority, and does the "
                   "certificate name the host as it was asked for?",
                   ::X509_verify_cert_error_string(verified), kTlsVariable);
  }
  const unsigned long code = ::ERR_peek_error();
  const bool stranger =
      transport_->ended || transport_->error_number == ECONNRESET || ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER;
  const std::string reason = code == 0 ? transport_->error_number == 0 ? "the peer closed the connection"
                                                                       : std::strerror(transport_->error_number)
                                       : last_reason();
  if (server_) return unavailable("TLS: no handshake: {}", reason);
  if (!stranger) return unavailable("TLS: no handshake: {}", reason);
  return unavailable(
      "TLS: the server doesn't speak it ({}): start it with --tls-cert and --tls-key, or do without here by leaving {} "
      "unset",
      reason, kTlsVariable);
}

// Of a call that moved nothing.
StreamIo TlsSession::io_of(int returned) {
  switch (::SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return {.error_number = transport_->error_number == EINTR ? EINTR : EAGAIN};
    case SSL_ERROR_ZERO_RETURN: return {};
    case SSL_ERROR_SYSCALL:
      if (transport_->error_number != 0) return {.error_number = transport_->error_number};
      return {};
    default: return {.error_number = EBADMSG};
  }
}

StreamIo TlsSession::read(std::span<const iovec> to) {
  for (const iovec& piece : to) {
    if (piece.iov_len == 0) continue;
    ::ERR_clear_error();
    std::size_t bytes = 0;
    const int returned = ::SSL_read_ex(ssl_, piece.iov_base, piece.iov_len, &bytes);
    if (returned == 1) return {.bytes = bytes};
    return io_of(returned);
  }
  return {};
}

StreamIo TlsSession::write(std::span<const iovec> from) {
  std::size_t written = 0, within = 0;
  for (std::size_t i = 0; i < from.size();) {
    // A record from where it lies; what is smaller is joined with what follows. After a call that moved nothing the
    // caller comes with the same bytes again, as OpenSSL wants it.
    const auto* start = static_cast<const std::byte*>(from[i].iov_base) + within;
    std::size_t size = std::min(from[i].iov_len - within, kRecordBytes);
    if (size < kRecordBytes && i + 1 < from.size()) {
      staged_.assign(start, start + size);
      for (std::size_t k = i + 1; k < from.size() && staged_.size() < kRecordBytes; ++k) {
        const auto* more = static_cast<const std::byte*>(from[k].iov_base);
        staged_.insert(staged_.end(), more, more + std::min(from[k].iov_len, kRecordBytes - staged_.size()));
      }
      start = staged_.data();
      size = staged_.size();
    }
    if (size == 0) break;
    ::ERR_clear_error();
    std::size_t bytes = 0;
    const int returned = ::SSL_write_ex(ssl_, start, size, &bytes);
    if (returned != 1) {
      if (written > 0) break;
      return io_of(returned);
    }
    written += bytes;
    for (within += bytes; i < from.size() && within >= from[i].iov_len; ++i) within -= from[i].iov_len;
  }
  return {.bytes = written};
}

bool TlsSession::has_pending() const { return ::SSL_has_pending(ssl_) == 1; }

}  // namespace nmc::net
