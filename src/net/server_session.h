// Internal to net: one connection of a ChannelServer, from its handshake to its end.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <atomic>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/channel_server.h"
#include "net/handshake.h"
#include "net/server_wire.h"

namespace nmc::net {

// What all sessions of a server share. Outlives them.
struct ServerCore {
  const ChannelServerOptions options;
  MessageHandler& handler;
  std::shared_ptr<const TlsContext> tls = nullptr;  // of TCP
  std::atomic<std::uint64_t> next_session_id{1};
  std::atomic<std::size_t> serving{0};   // counted against connections_max
  std::atomic<std::size_t> refusing{0};  // those beyond, while they are told
  std::atomic<std::uint64_t> accepted{0}, refused{0};
};

// How many of a loop's sessions have something to do: a handshake, or a request until its reply is out.
using BusySessions = std::atomic<int>;

// Counts one of them for as long as it lives.
class Busy {
 public:
  explicit Busy(BusySessions& sessions) : sessions_(&sessions) { sessions.fetch_add(1, std::memory_order_relaxed); }
  Busy(Busy&& other) noexcept : sessions_(std::exchange(other.sessions_, nullptr)) {}
  Busy& operator=(Busy&&) = delete;
  ~Busy() {
    if (sessions_ != nullptr) sessions_->fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  BusySessions* sessions_;
};

// Belongs to its loop's thread, but for Session's exceptions.
class ServerSession final : public Session, public std::enable_shared_from_this<ServerSession> {
 public:
  // `busy` outlives it. `refuse`: there are too many; it is told so after its hello.
  ServerSession(ServerCore& core, boost::asio::io_context& loop, BusySessions& busy, Carrier carrier, UniqueFd fd,
                bool refuse);
  ~ServerSession() override;

  // Serves until either side has enough, then calls `on_end`. Keeps itself alive. `arriving` ends with the handshake.
  void start(Busy arriving, std::function<void()> on_end);
  void close_now();

  std::uint64_t id() const override { return id_; }
  Carrier carrier() const override { return carrier_; }
  const std::optional<Peer>& peer() const override { return peer_; }
  const std::string& peer_name() const override { return peer_name_; }
  const MessageCounters& counters() const override { return counters_; }
  void close() override;

 private:
  boost::asio::awaitable<void> run(Busy arriving);
  boost::asio::awaitable<Result<void>> shake_hands();
  boost::asio::awaitable<Result<void>> check_token(const HandshakeNonces& nonces, LoopTime until);
  boost::asio::awaitable<Result<ByteSpan>> expect(std::uint16_t op, LoopTime until);
  boost::asio::awaitable<Result<void>> serve();
  boost::asio::awaitable<Result<void>> serve_one(const Frame& frame);
  boost::asio::awaitable<Result<void>> drop_payload(Request& request);
  boost::asio::awaitable<Result<void>> send_reply(const FrameHeader& request, const Reply& reply);
  boost::asio::awaitable<Result<void>> send_error(const FrameHeader& request, const Error& error);
  bool token_wanted() const;
  void log_end(const Result<void>& end) const;

  ServerCore& core_;
  boost::asio::io_context& loop_;
  BusySessions& busy_;
  const std::uint64_t id_;
  const Carrier carrier_;
  const bool refuse_;
  std::optional<Peer> peer_;
  std::string peer_name_;
  std::unique_ptr<ServerWire> wire_;         // nullptr once it has ended
  boost::asio::cancellation_signal cancel_;  // reaches what a handler waits for
  MessageCounters counters_;
  bool closed_ = false;  // by us
};

}  // namespace nmc::net
