#include "http/server.h"

#include <utility>

#include "base/hash.h"
#include "http/cors.h"
#include "http/extra_headers.h"
#include "http/route.h"
#include "http/server_state.h"
#include "http/status.h"
#include "http/task_thread.h"

namespace nmc::http {
namespace {

using net::HttpRequest;
using net::HttpResponse;

constexpr std::size_t kWaitingBodiesMax = 64;

// Digests instead of the keys: takes as long for a near miss as for any other.
bool same_secret(std::string_view a, std::string_view b) {
  const Digest left = sha256(a);
  const Digest right = sha256(b);
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.bytes.size(); ++i) difference |= left.bytes[i] ^ right.bytes[i];
  return difference == 0;
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, const model::Model& model, engine::Runtime& runtime, const store::Store* store)
      : state_(std::make_shared<ServerState>(std::move(options), model, runtime, store)),
        cors_(state_->options.cors_origins),
        bodies_(kWaitingBodiesMax) {}

  Result<void> listen() {
    net::HttpServerOptions options = state_->options.http;
    options.render_error = [](int status, std::string_view message) {
      return error_response({status, std::string(message), ""});
    };
    NMC_ASSIGN_OR_RETURN(http_,
                         net::HttpServer::start(std::move(options), [this](HttpRequest request, Exchange exchange) {
                           route(std::move(request), std::move(exchange));
                         }));
    return {};
  }

  const std::string& url() const { return http_->url(); }
  void stop_accepting() { state_->draining.store(true); }
  bool wait_idle(Nanos timeout) { return http_->wait_idle(timeout); }

 private:
  void route(HttpRequest request, Exchange exchange) {
    const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : request.method;
    const Route* found = nullptr;
    std::string allowed;
    for (const Route& known : all_routes()) {
      if (known.path != request.path) continue;
      if (!allowed.empty()) allowed += ", ";
      allowed += known.method;
      if (known.method == "GET") allowed += ", HEAD";
      if (known.method == method) found = &known;
    }
    exchange = with_headers(std::move(exchange), cors_.headers(request));
    // Before the key is asked for: browsers send none along.
    if (!allowed.empty() && cors_.is_preflight(request)) return exchange->respond(Cors::preflight(request, allowed));
    // Whoever lacks the key doesn't learn what there is below /v1 either.
    const bool is_guarded = found != nullptr ? found->access == Access::kKey : request.path.starts_with("/v1/");
    if (is_guarded && !authorized(request)) {
      return exchange->respond(error_response({401, "missing or wrong API key; send `Authorization: Bearer KEY`", ""}));
    }
    if (found != nullptr) return found->handle({state_, bodies_, std::move(request), std::move(exchange)});
    exchange->respond(allowed.empty() ? no_such_path(request) : wrong_method(request, allowed));
  }

  static HttpResponse no_such_path(const HttpRequest& request) {
    return error_response({404, fmt::format("there is no {} here", request.path), ""});
  }
  static HttpResponse wrong_method(const HttpRequest& request, const std::string& allowed) {
    HttpResponse response =
        error_response({405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method), ""});
    response.headers.push_back({"Allow", allowed});
    return response;
  }

  bool authorized(const HttpRequest& request) const {
    if (state_->options.api_key.empty()) return true;
    const std::string* header = request.header("Authorization");
    constexpr std::string_view kScheme = "Bearer ";
    return header != nullptr && net::equals_ignoring_case(header->substr(0, kScheme.size()), kScheme) &&
           same_secret(std::string_view(*header).substr(kScheme.size()), state_->options.api_key);
  }

  const std::shared_ptr<ServerState> state_;
  const Cors cors_;
  TaskThread bodies_;
  std::unique_ptr<net::HttpServer> http_;  // ends first: its threads use all the others
};

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, const model::Model& model,
                                              engine::Runtime& runtime, const store::Store* store) {
  auto impl = std::make_unique<Impl>(std::move(options), model, runtime, store);
  NMC_RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
const std::string& Server::url() const { return impl_->url(); }
void Server::stop_accepting() { impl_->stop_accepting(); }
bool Server::wait_idle(Nanos timeout) { return impl_->wait_idle(timeout); }

}  // namespace nmc::http
