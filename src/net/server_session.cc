#include "net/server_session.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;

// A client that sends ahead is served so many times before others on the loop have a turn.
constexpr unsigned kRequestsPerTurn = 32;

std::optional<Session::Peer> unix_peer(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return Session::Peer{.pid = credentials.pid, .uid = credentials.uid};
}

std::string tcp_peer_name(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&name), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a peer that is gone";
  }
  return name.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

Request::Request(const FrameHeader& header, ByteSpan body_bytes, ServerWire& wire)
    : op(header.op),
      id(header.request_id),
      payload_bytes(header.payload_bytes),
      body(body_bytes),
      wire_(wire),
      payload_left_(header.payload_bytes) {}

asio::awaitable<Result<void>> Request::read_payload(MutableByteSpan to) {
  NMC_REQUIRE(to.size() <= payload_left_, "to={} left={}", to.size(), payload_left_);
  NMC_REQUIRE(!error_, "after a failure");
  Result<void> read = co_await wire_.read_payload(to);
  if (read) {
    payload_left_ -= to.size();
  } else {
    error_ = read.error();
  }
  co_return read;
}

ServerSession::ServerSession(ServerCore& core, asio::io_context& loop, BusySessions& busy, Carrier carrier, UniqueFd fd,
                             bool refuse)
    : core_(core),
      loop_(loop),
      busy_(busy),
      id_(core.next_session_id.fetch_add(1, std::memory_order_relaxed)),
      carrier_(carrier),
      refuse_(refuse) {
  const ServerWireOptions options{
      .limits = core.options.limits, .progress_deadline = core.options.progress_deadline, .tls = core.tls};
  if (carrier == Carrier::kUnix) {
    peer_ = unix_peer(fd.get());
    peer_name_ = peer_ ? fmt::format("process {} of user {}", peer_->pid, peer_->uid) : "an unknown process";
    wire_ = create_unix_server_wire(loop, std::move(fd), options);
  } else {
    peer_name_ = tcp_peer_name(fd.get());
    wire_ = create_tcp_server_wire(loop, std::move(fd), options);
  }
}

ServerSession::~ServerSession() = default;

void ServerSession::start(Busy arriving, std::function<void()> on_end) {
  const auto ended = [self = shared_from_this(), on_end = std::move(on_end)](std::exception_ptr thrown) {
    NMC_ASSERT(!thrown, "a message handler threw");
    // Later: the coroutine that ends here still refers to cancel_.
    asio::post(self->loop_, [self, on_end] { on_end(); });
  };
  asio::co_spawn(loop_, run(std::move(arriving)), asio::bind_cancellation_slot(cancel_.slot(), ended));
}

void ServerSession::close() {
  asio::post(loop_, [self = shared_from_this()] { self->close_now(); });
}

void ServerSession::close_now() {
  if (std::exchange(closed_, true)) return;
  if (wire_) wire_->close();
  cancel_.emit(asio::cancellation_type::terminal);
}

asio::awaitable<void> ServerSession::run(Busy arriving) {
  // Cancellation shows in what is being waited for; it must not throw out of the code behind.
  co_await asio::this_coro::throw_if_cancelled(false);
  std::optional<Busy> shaking_hands(std::move(arriving));
  Result<void> end = co_await shake_hands();
  shaking_hands.reset();
  if (end) {
    core_.handler.on_open(*this);
    end = co_await serve();
    core_.handler.on_close(*this);
    state.reset();
  }
  log_end(end);
  wire_.reset();
}

bool ServerSession::token_wanted() const {
  const ChannelServerOptions& options = core_.options;
  return !options.token.empty() && (carrier_ == Carrier::kTcp || options.token_on_unix);
}

asio::awaitable<Result<void>> ServerSession::shake_hands() {
  const LoopTime until = loop_time_after(core_.options.handshake_deadline);
  Result<ByteSpan> body = co_await expect(kOpHello, until);
  if (!body) co_return Failure(std::move(body).error());
  Result<Hello> hello = decode_hello(*body);
  if (!hello) co_return Failure(std::move(hello).error());
  Result<Nonce> nonce = random_nonce();
  if (!nonce) co_return Failure(std::move(nonce).error());
  const HandshakeNonces nonces{.server = *nonce, .client = hello->nonce};

  const FrameHeader request{.op = kOpHello};
  if (refuse_) {
    const Error error{ErrorCode::kResourceExhausted,
                      fmt::format("all {} connections of the server are taken", core_.options.connections_max)};
    Result<void> told = co_await send_error(request, error);
    co_return Failure(error);
  }
  Reply greeting;
  greeting.body = encode_greeting({.token_wanted = token_wanted(), .nonce = nonces.server});
  Result<void> sent = co_await send_reply(request, greeting);
  if (!sent || !token_wanted()) co_return sent;
  co_return co_await check_token(nonces, until);
}

asio::awaitable<Result<void>> ServerSession::check_token(const HandshakeNonces& nonces, LoopTime until) {
  Result<ByteSpan> body = co_await expect(kOpProof, until);
  if (!body) co_return Failure(std::move(body).error());
  Result<Digest> proof = decode_proof(*body);
  if (!proof) co_return Failure(std::move(proof).error());
  const FrameHeader request{.op = kOpProof};
  const std::string& token = core_.options.token;
  if (!equal_proofs(*proof, token_proof(token, Prover::kClient, nonces))) {
    const Error error{ErrorCode::kPermissionDenied, fmt::format("wrong token: {} is not the server's", kTokenVariable)};
    Result<void> told = co_await send_error(request, error);
    co_return Failure(error);
  }
  Reply own;
  own.body = encode_proof(token_proof(token, Prover::kServer, nonces));
  co_return co_await send_reply(request, own);
}

// The body of the handshake's next frame.
asio::awaitable<Result<ByteSpan>> ServerSession::expect(std::uint16_t op, LoopTime until) {
  Result<std::optional<Frame>> frame = co_await wire_->receive(until, until);
  if (!frame) {
    Error error = std::move(frame).error();
    if (error.code == ErrorCode::kVersionMismatch || error.code == ErrorCode::kPermissionDenied) {
      const FrameHeader request{.op = op};
      Result<void> told = co_await send_error(request, error);
    }
    co_return Failure(std::move(error));
  }
  if (!*frame) co_return unavailable("the peer left within the handshake");
  const FrameHeader& header = (*frame)->header;
  if (header.op != op || header.status != FrameStatus::kOk || header.request_id != 0 || header.payload_bytes != 0) {
    co_return corrupt("message of op {} within the handshake, expected op {}", header.op, op);
  }
  co_return (*frame)->body;
}

asio::awaitable<Result<void>> ServerSession::serve() {
  for (unsigned served = 1;; ++served) {
    Result<std::optional<Frame>> frame = co_await wire_->receive(LoopTime::max(), LoopTime::max());
    if (!frame) co_return Failure(std::move(frame).error());
    if (!*frame) co_return Result<void>();
    Result<void> answered = co_await serve_one(**frame);
    if (!answered) co_return answered;
    if (closed_) co_return cancelled("closed");
    if (served % kRequestsPerTurn == 0) co_await yield_turn();
  }
}

asio::awaitable<Result<void>> ServerSession::serve_one(const Frame& frame) {
  const Busy busy(busy_);
  const FrameHeader header = frame.header;
  if (header.status != FrameStatus::kOk || header.op >= kReservedOps) {
    co_return corrupt("message of op {} and status {}, expected a request", header.op,
                      static_cast<std::uint32_t>(header.status));
  }
  Request request(header, frame.body, *wire_);
  Reply reply = co_await core_.handler.handle(*this, request);
  if (request.error_) co_return Failure(*std::move(request.error_));
  if (request.payload_left() > 0) {
    Result<void> dropped = co_await drop_payload(request);
    if (!dropped) co_return dropped;
  }
  counters_.count_received(header.payload_bytes);
  if (closed_) co_return cancelled("closed");
  if (auto hit = failpoint("net.reply")) co_return Failure(*std::move(hit));
  co_return co_await send_reply(header, reply);
}

// A client sends its request whole before it listens.
asio::awaitable<Result<void>> ServerSession::drop_payload(Request& request) {
  std::vector<std::byte> dropped(std::min<std::uint64_t>(request.payload_left(), 256 << 10));
  while (request.payload_left() > 0) {
    const std::size_t size = std::min<std::uint64_t>(request.payload_left(), dropped.size());
    Result<void> read = co_await request.read_payload(MutableByteSpan(dropped).first(size));
    if (!read) co_return read;
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> ServerSession::send_reply(const FrameHeader& request, const Reply& reply) {
  if (reply.error) co_return co_await send_error(request, *reply.error);
  const ServerWire::Outgoing outgoing{.header = {.op = request.op,
                                                 .body_bytes = static_cast<std::uint32_t>(reply.body.size()),
                                                 .request_id = request.request_id,
                                                 .payload_bytes = total_bytes(reply.payload)},
                                      .body = reply.body,
                                      .payload = reply.payload,
                                      .fds = reply.fds};
  Result<void> fits = wire_->check(outgoing);
  if (!fits) {
    log_error("{}: {}", peer_name_, fits.error().message);
    co_return co_await send_error(request, fits.error());
  }
  Result<void> sent = co_await wire_->send(outgoing);
  if (sent && request.op < kReservedOps) counters_.count_sent(outgoing.header.payload_bytes);
  co_return sent;
}

asio::awaitable<Result<void>> ServerSession::send_error(const FrameHeader& request, const Error& error) {
  const std::vector<std::byte> body = encode_error(error);
  const ServerWire::Outgoing outgoing{.header = {.op = request.op,
                                                 .status = FrameStatus::kError,
                                                 .body_bytes = static_cast<std::uint32_t>(body.size()),
                                                 .request_id = request.request_id},
                                      .body = body};
  Result<void> sent = co_await wire_->send(outgoing);
  if (sent && request.op < kReservedOps) counters_.count_sent(0);
  co_return sent;
}

void ServerSession::log_end(const Result<void>& end) const {
  if (end || closed_) return;
  const Error& error = end.error();
  if (error.code == ErrorCode::kUnavailable) {  // clients end as they like
    log_debug("{}: {}", peer_name_, error.message);
  } else {
    log_warning("closed the connection to {}: {}", peer_name_, error.message);
  }
}

}  // namespace nmc::net
