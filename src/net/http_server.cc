#include "net/http_server.h"

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/syscall.h"
#include "net/http_connection.h"
#include "net/listener.h"

namespace nmc::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Small writes leave at once; a peer that vanished without a word is noticed by the kernel: with data under way after
// write_timeout, without any after about a minute.
void tune(tcp::socket& socket, Nanos write_timeout) {
  (void)::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  const auto set = [&socket](int level, int option, int value) {
    (void)::setsockopt(socket.native_handle(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(write_timeout).count()));
}

// Of a descriptor that children don't inherit, as Asio's own would be.
Result<tcp::acceptor> listen_on(asio::io_context& context, const std::string& host, std::uint16_t port) {
  if (host.empty()) return invalid_argument("can't listen on host \"\": no address given");
  NMC_ASSIGN_OR_RETURN(TcpListener listener, listen_tcp(host, port));
  int family = AF_INET;
  socklen_t size = sizeof family;
  (void)::getsockopt(listener.fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  tcp::acceptor acceptor(asio::make_strand(context));
  error_code error;
  acceptor.assign(family == AF_INET6 ? tcp::v6() : tcp::v4(), listener.fd.get(), error);
  if (error) return Failure(os_error("listen on", fmt::format("{} port {}", host, port), error.value()));
  (void)listener.fd.release();  // the acceptor has it
  return acceptor;
}

std::string url_of(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("http://[{}]:{}", host, port) : fmt::format("http://{}:{}", host, port);
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, Handler handler)
      : options_(std::make_shared<const HttpServerOptions>(std::move(options))),
        context_(options_->io_threads),
        work_(asio::make_work_guard(context_)) {
    core_.options = options_;
    core_.handler = std::move(handler);
  }

  ~Impl() {
    stop_accepting();
    for (const auto& connection : core_.table.all()) connection->close();
    work_.reset();
    for (std::thread& thread : threads_) thread.join();  // all connections have ended when the loop runs dry
  }

  Result<void> start() {
    NMC_ASSIGN_OR_RETURN(auto acceptor, listen_on(context_, options_->host, options_->port));
    error_code error;
    port_ = acceptor.local_endpoint(error).port();
    if (error) return Failure(os_error("getsockname", options_->host, error.value()));
    url_ = url_of(options_->host, port_);
    acceptor_.emplace(std::move(acceptor));
    asio::co_spawn(acceptor_->get_executor(), accept_all(), asio::detached);
    for (int i = 0; i < options_->io_threads; ++i) {
      threads_.emplace_back([this] { context_.run(); });
    }
    return {};
  }

  void stop_accepting() {
    if (core_.stopping.exchange(true) || !acceptor_) return;
    asio::post(acceptor_->get_executor(), [this] {
      error_code ignored;
      acceptor_->close(ignored);
    });
    for (const auto& connection : core_.table.all()) connection->close_if_idle();
  }

  std::uint16_t port() const { return port_; }
  const std::string& url() const { return url_; }
  HttpConnectionTable& table() { return core_.table; }

 private:
  asio::awaitable<void> accept_all() {
    while (acceptor_->is_open()) {
      tcp::socket socket(asio::make_strand(context_));
      auto [error] = co_await acceptor_->async_accept(socket, kAwait);
      if (!error) {
        admit(std::move(socket));
      } else if (acceptor_->is_open()) {
        // Out of descriptors, most likely: those who wait in the backlog get their turn when some are free again.
        log_warning("can't accept a connection on {}: {}", url_, error.message());
        asio::steady_timer pause(acceptor_->get_executor(), std::chrono::milliseconds(100));
        co_await pause.async_wait(kAwait);
      }
    }
  }

  void admit(tcp::socket socket) {
    tune(socket, options_->write_timeout);
    const auto connection = HttpConnection::create(core_, std::move(socket));
    switch (core_.table.add(connection, options_->max_connections)) {
      case HttpConnectionTable::Admission::kServe: connection->start(); break;
      case HttpConnectionTable::Admission::kRefuse: connection->refuse(); break;
      case HttpConnectionTable::Admission::kDrop: break;
    }
    // One that was accepted while stop_accepting() or the destructor looked through the table.
    if (core_.stopping.load()) connection->close_if_idle();
  }

  const std::shared_ptr<const HttpServerOptions> options_;
  HttpServerCore core_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::optional<tcp::acceptor> acceptor_;
  std::vector<std::thread> threads_;
  std::uint16_t port_ = 0;
  std::string url_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Handler handler) {
  NMC_REQUIRE(options.io_threads > 0, "io_threads={}", options.io_threads);
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  NMC_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return impl_->port(); }
const std::string& HttpServer::url() const { return impl_->url(); }
void HttpServer::stop_accepting() { impl_->stop_accepting(); }
bool HttpServer::wait_idle(Nanos timeout) { return impl_->table().wait_idle(timeout); }
HttpServerStats HttpServer::stats() const { return impl_->table().stats(); }

}  // namespace nmc::net
