#include "http/server.h"

#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "base/version.h"
#include "http/completion.h"
#include "http/completion_request.h"
#include "http/engine_request.h"
#include "http/metrics_json.h"
#include "http/server_state.h"
#include "http/status.h"
#include "http/task_thread.h"

namespace nmc::http {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using Exchange = std::shared_ptr<HttpExchange>;

// Larger bodies are parsed and tokenized away from the I/O threads, of which each carries many streams.
constexpr std::size_t kInlineBodyBytes = 32 << 10;
constexpr std::size_t kWaitingBodiesMax = 64;

// Digests instead of the keys: takes as long for a near miss as for any other.
bool same_secret(std::string_view a, std::string_view b) {
  const Digest left = sha256(a);
  const Digest right = sha256(b);
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.bytes.size(); ++i) difference |= left.bytes[i] ^ right.bytes[i];
  return difference == 0;
}

bool is_json_type(std::string_view content_type) {
  const std::size_t end = content_type.find(';');
  std::string_view type = content_type.substr(0, end);
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return net::equals_ignoring_case(type, "application/json");
}

HttpResponse json_response(const Json& json, int status = 200) { return {.status = status, .body = dump_json(json)}; }

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, const model::Model& model, engine::Runtime& runtime, const store::Store* store)
      : state_(std::make_shared<ServerState>(std::move(options), model, runtime, store)), bodies_(kWaitingBodiesMax) {}

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
  using Handler = void (Impl::*)(HttpRequest, Exchange);
  struct Route {
    std::string_view method;
    std::string_view path;
    Handler handler;
  };
  static const std::array<Route, 6> kRoutes;

  void route(HttpRequest request, Exchange exchange) {
    if (request.path.starts_with("/v1/") && !authorized(request)) {
      return exchange->respond(error_response({401, "missing or wrong API key; send `Authorization: Bearer KEY`", ""}));
    }
    const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : request.method;
    const Route* same_path = nullptr;
    for (const Route& known : kRoutes) {
      if (known.path != request.path) continue;
      same_path = &known;
      if (known.method == method) return (this->*known.handler)(std::move(request), std::move(exchange));
    }
    exchange->respond(same_path == nullptr ? no_such_path(request) : wrong_method(request, *same_path));
  }

  static HttpResponse no_such_path(const HttpRequest& request) {
    return error_response({404, fmt::format("there is no {} here", request.path), ""});
  }
  static HttpResponse wrong_method(const HttpRequest& request, const Route& known) {
    HttpResponse response =
        error_response({405, fmt::format("{} takes {}, not {}", request.path, known.method, request.method), ""});
    response.headers.push_back({"Allow", std::string(known.method)});
    return response;
  }

  bool authorized(const HttpRequest& request) const {
    if (state_->options.api_key.empty()) return true;
    const std::string* header = request.header("Authorization");
    constexpr std::string_view kScheme = "Bearer ";
    return header != nullptr && net::equals_ignoring_case(header->substr(0, kScheme.size()), kScheme) &&
           same_secret(std::string_view(*header).substr(kScheme.size()), state_->options.api_key);
  }

  void healthz(HttpRequest, Exchange exchange) {
    const bool draining = state_->draining.load();
    Json json;
    json["status"] = draining ? "draining" : "ok";
    json["model"] = state_->options.served_model_name;
    json["version"] = build_info().version;
    exchange->respond(json_response(json, draining ? 503 : 200));
  }

  // For probes that only look at the status.
  void health(HttpRequest, Exchange exchange) {
    exchange->respond({.status = state_->draining.load() ? 503 : 200, .content_type = ""});
  }

  void models(HttpRequest, Exchange exchange) {
    Json json;
    json["object"] = "list";
    json["data"] = Json::array();
    for (const std::string& name : state_->served.models) {
      Json model;
      model["id"] = name;
      model["object"] = "model";
      model["created"] = state_->created;
      model["owned_by"] = "nano-mooncake";
      const bool is_base = json["data"].empty();
      model["root"] = is_base ? state_->model.name : name;
      model["parent"] = is_base ? Json(nullptr) : Json(state_->served.models.front());
      model["max_model_len"] = state_->context;
      model["permission"] = Json::array();
      json["data"].push_back(std::move(model));
    }
    exchange->respond(json_response(json));
  }

  void metrics(HttpRequest, Exchange exchange) { exchange->respond(json_response(metrics_json(*state_))); }

  void chat_completions(HttpRequest request, Exchange exchange) {
    accept(std::move(request), std::move(exchange), Endpoint::kChat);
  }
  void completions(HttpRequest request, Exchange exchange) {
    accept(std::move(request), std::move(exchange), Endpoint::kCompletions);
  }

  void accept(HttpRequest request, Exchange exchange, Endpoint endpoint) {
    if (state_->draining.load()) {
      return exchange->respond(error_response({503, "the server is shutting down and takes no more requests", ""}));
    }
    const std::string* type = request.header("Content-Type");
    if (type != nullptr && !is_json_type(*type)) {
      return exchange->respond(
          error_response({400, fmt::format("Content-Type: expected application/json, got {}", *type), ""}));
    }
    const bool large = request.body.size() > kInlineBodyBytes;
    // The handler keeps `exchange` until the task ran: a dropped task would answer 500 by itself.
    auto work = [state = state_, exchange, endpoint, body = std::move(request.body)] {
      begin(state, body, endpoint, exchange);
    };
    if (!large) return work();
    if (!bodies_.post(std::move(work))) {
      exchange->respond(
          error_response({503, fmt::format("{} large requests wait to be read already", kWaitingBodiesMax), ""}));
    }
  }

  // On an I/O thread or, for a large body, on the task thread.
  static void begin(const std::shared_ptr<ServerState>& state, const std::string& body, Endpoint endpoint,
                    const Exchange& exchange) {
    EngineLimits limits{.context = state->context, .deadline = std::nullopt};
    if (state->options.request_timeout > Nanos{0})
      limits.deadline = state->clock().now() + state->options.request_timeout;
    auto request = parse_completion_request(body, endpoint, state->served);
    if (!request) return exchange->respond(error_response(request.error()));
    const std::string id = fmt::format("{}-{:016x}{:016x}", endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl",
                                       state->draw(), state->draw());
    auto made = make_engine_requests(*request, id, state->model, limits, state->draw());
    if (!made) return exchange->respond(error_response(made.error()));
    for (engine::GenerateRequest& one : *made) one.adapter = state->adapter_of(request->model);
    CompletionFormat format(endpoint, id, state->clock().unix_seconds(), state->served.models[request->model]);
    exchange->post([state, exchange, format = std::move(format), request = std::move(*request),
                    made = std::move(*made)]() mutable {
      start_completion(state, request, std::move(made), std::move(format), exchange);
    });
  }

  const std::shared_ptr<ServerState> state_;
  TaskThread bodies_;
  std::unique_ptr<net::HttpServer> http_;  // ends first: its threads use all the others
};

const std::array<Server::Impl::Route, 6> Server::Impl::kRoutes = {{
    {"POST", "/v1/chat/completions", &Impl::chat_completions},
    {"POST", "/v1/completions", &Impl::completions},
    {"GET", "/v1/models", &Impl::models},
    {"GET", "/v1/metrics", &Impl::metrics},
    {"GET", "/healthz", &Impl::healthz},
    {"GET", "/health", &Impl::health},
}};

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
