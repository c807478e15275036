#include "net/channel_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "net/listener.h"
#include "net/ready_fd.h"
#include "net/server_session.h"
#include "net/spin.h"
#include "net/tls.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kRefusingMax = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// One thread with its sessions, and the listening socket that it may have.
class ServerLoop {
 public:
  ServerLoop(ServerCore& core, Carrier carrier)
      : core_(core), carrier_(carrier), context_(1), work_(asio::make_work_guard(context_)), pause_(context_) {}
  ~ServerLoop() {
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  // Accepted connections go to that of `loops` which has least to do, or in turn. Before start().
  void accept_from(UniqueFd listener, std::vector<ServerLoop*> loops) {
    listener_ = std::move(listener);
    acceptor_ = std::make_unique<ReadyFd>(context_, listener_.get());
    loops_ = std::move(loops);
    asio::co_spawn(context_, accept_all(), asio::detached);
  }

  // Closes all and lets the thread end when the last session has. Thread-safe.
  void stop() {
    asio::post(context_, [this] {
      stopping_ = true;
      pause_.cancel();
      if (acceptor_) acceptor_->close();
      const auto sessions = sessions_;
      for (const auto& session : sessions) session->close_now();
      work_.reset();
    });
  }

 private:
  // io_context::run(), but with a look at what comes next before sleep.
  void run() {
    Spin spin;
    while (!context_.stopped()) {
      if (context_.poll() > 0) continue;
      if (!spin.catches([this] { return context_.poll() > 0 || context_.stopped(); })) context_.run_one();
    }
  }

  asio::awaitable<void> accept_all() {
    while (!stopping_) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        admit(std::move(fd));
      } else if (errno == EAGAIN) {
        Result<void> ready = co_await acceptor_->wait(ReadyFd::For::kReading, LoopTime::max());
        if (!ready) co_return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        // Out of descriptors, most likely: those who wait in the backlog get their turn when some are free again.
        log_warning("can't accept a connection: {}", os_error("accept", carrier_name(carrier_)).message);
        pause_.expires_after(kAcceptPause);
        co_await pause_.async_wait(kAwait);
      }
    }
  }

  void admit(UniqueFd fd) {
    core_.accepted.fetch_add(1, std::memory_order_relaxed);
    const bool refuse = core_.serving.fetch_add(1, std::memory_order_relaxed) >= core_.options.connections_max;
    if (refuse) {
      core_.serving.fetch_sub(1, std::memory_order_relaxed);
      core_.refused.fetch_add(1, std::memory_order_relaxed);
      if (core_.refusing.fetch_add(1, std::memory_order_relaxed) >= kRefusingMax) {
        core_.refusing.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
    }
    ServerLoop& loop = least_busy_loop();
    asio::post(loop.context_, [&loop, refuse, arriving = Busy(loop.busy_), socket = std::move(fd)]() mutable {
      loop.serve(std::move(arriving), std::move(socket), refuse);
    });
  }

  // A client opens one more connection when those that it has are busy, so that they don't share a thread here.
  ServerLoop& least_busy_loop() {
    std::rotate(loops_.begin(), loops_.begin() + 1, loops_.end());
    return **std::min_element(loops_.begin(), loops_.end(), [](const ServerLoop* a, const ServerLoop* b) {
      return a->busy_.load(std::memory_order_relaxed) < b->busy_.load(std::memory_order_relaxed);
    });
  }

  void serve(Busy arriving, UniqueFd fd, bool refuse) {
    if (stopping_) return;
    auto session = std::make_shared<ServerSession>(core_, context_, busy_, carrier_, std::move(fd), refuse);
    sessions_.insert(session);
    session->start(std::move(arriving), [this, refuse, raw = session.get()] {
      (refuse ? core_.refusing : core_.serving).fetch_sub(1, std::memory_order_relaxed);
      sessions_.erase(raw->shared_from_this());
    });
  }

  ServerCore& core_;
  const Carrier carrier_;
  BusySessions busy_{0};
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer pause_;
  std::thread thread_;

  // The loop's thread only.
  bool stopping_ = false;
  UniqueFd listener_;
  std::unique_ptr<ReadyFd> acceptor_;
  std::vector<ServerLoop*> loops_;  // the next one in turn first
  std::unordered_set<std::shared_ptr<ServerSession>> sessions_;
};

}  // namespace

class ChannelServer::Impl {
 public:
  Impl(ChannelServerOptions options, MessageHandler& handler)
      : core_{.options = std::move(options), .handler = handler} {}

  ~Impl() {
    unix_listener_.reset();  // while its socket still lives, so that nobody has replaced the file
    for (const auto& loop : loops_) loop->stop();
    loops_.clear();
  }

  Result<void> start() {
    const ChannelServerOptions& options = core_.options;
    if (!options.tls_cert.empty() || !options.tls_key.empty()) {
      if (options.tls_cert.empty() || options.tls_key.empty())
        return invalid_argument("TLS takes a certificate and its key, only the {} is given",
                                options.tls_key.empty() ? "certificate" : "key");
      NMC_ASSIGN_OR_RETURN(core_.tls, TlsContext::for_server(options.tls_cert, options.tls_key));
    }
    if (!options.unix_path.empty()) {
      NMC_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::open(options.unix_path, options.unix_mode));
      unix_listener_.emplace(std::move(listener));
      add_loops(Carrier::kUnix, options.unix_loops, unix_listener_->take_fd());
    }
    if (!options.tcp_host.empty()) {
      NMC_ASSIGN_OR_RETURN(TcpListener listener, listen_tcp(options.tcp_host, options.tcp_port));
      if (!listener.loopback && options.token.empty() && !options.insecure) {
        return failure(ErrorCode::kPermissionDenied,
                       "listening on {} opens the server to other hosts: set {}, or allow it without a token",
                       options.tcp_host, kTokenVariable);
      }
      tcp_port_ = listener.port;
      add_loops(Carrier::kTcp, options.tcp_loops, std::move(listener.fd));
    }
    for (const auto& loop : loops_) loop->start();
    return {};
  }

  std::uint16_t tcp_port() const { return tcp_port_; }

  ChannelServerStats stats() const {
    return {.connections = core_.serving.load(std::memory_order_relaxed),
            .accepted = core_.accepted.load(std::memory_order_relaxed),
            .refused = core_.refused.load(std::memory_order_relaxed)};
  }

 private:
  void add_loops(Carrier carrier, int count, UniqueFd listener) {
    std::vector<ServerLoop*> loops;
    for (int i = 0; i < count; ++i) {
      loops_.push_back(std::make_unique<ServerLoop>(core_, carrier));
      loops.push_back(loops_.back().get());
    }
    loops.front()->accept_from(std::move(listener), loops);
  }

  ServerCore core_;
  std::uint16_t tcp_port_ = 0;
  std::optional<UnixListener> unix_listener_;
  std::vector<std::unique_ptr<ServerLoop>> loops_;
};

Result<std::unique_ptr<ChannelServer>> ChannelServer::start(ChannelServerOptions options, MessageHandler& handler) {
  NMC_REQUIRE(!options.unix_path.empty() || !options.tcp_host.empty());
  NMC_REQUIRE(options.unix_loops > 0 && options.tcp_loops > 0, "unix_loops={} tcp_loops={}", options.unix_loops,
              options.tcp_loops);
  auto impl = std::make_unique<Impl>(std::move(options), handler);
  NMC_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<ChannelServer>(new ChannelServer(std::move(impl)));
}

ChannelServer::ChannelServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChannelServer::~ChannelServer() = default;

std::uint16_t ChannelServer::tcp_port() const { return impl_->tcp_port(); }
ChannelServerStats ChannelServer::stats() const { return impl_->stats(); }

}  // namespace nmc::net
