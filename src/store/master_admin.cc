#include "store/master_admin.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json.h"

namespace nmc::store {
namespace {

using net::HttpRequest;
using net::HttpResponse;

constexpr std::size_t kBodyBytesMax = 64 << 10;  // no route reads one

HttpResponse json(const Json& value, int status = 200) {
  return {.status = status, .content_type = "application/json; charset=utf-8", .body = dump_json(value)};
}

HttpResponse text(std::string body) { return {.content_type = "text/plain; charset=utf-8", .body = std::move(body)}; }

HttpResponse refusal(int status, StoreCode code, std::string message) {
  return json({{"success", false}, {"error_code", outcome_of(code)}, {"error_message", std::move(message)}}, status);
}

bool carries_token(const HttpRequest& request, const std::string& token) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* header = request.header("Authorization");
  if (header == nullptr || !net::equals_ignoring_case(header->substr(0, kScheme.size()), kScheme)) return false;
  // Digests instead of the tokens: takes as long for a near miss as for any other.
  const Digest theirs = sha256(std::string_view(*header).substr(kScheme.size())), ours = sha256(token);
  unsigned difference = 0;
  for (std::size_t i = 0; i < ours.bytes.size(); ++i) difference |= theirs.bytes[i] ^ ours.bytes[i];
  return difference == 0;
}

}  // namespace

MasterAdmin::Route MasterAdmin::find_route(const HttpRequest& request, std::string& allowed) {
  struct Row {
    std::string_view path, method;
    Route route;
  };
  static constexpr Row kRows[] = {
      {"/health", "GET", &MasterAdmin::health},
      {"/role", "GET", &MasterAdmin::role},
      {"/ha_status", "GET", &MasterAdmin::ha_status},
      {"/leader", "GET", &MasterAdmin::leader},
  };
  for (const Row& row : kRows) {
    if (row.path != request.path) continue;
    if (row.method == request.method || (row.method == "GET" && request.method == "HEAD")) return row.route;
    allowed = row.method == "GET" ? "GET, HEAD" : row.method;
  }
  return nullptr;
}

HttpResponse MasterAdmin::handle(const HttpRequest& request) {
  std::string allowed;
  const Route route = find_route(request, allowed);
  if (!options_.token.empty() && request.path != "/health" && !carries_token(request, options_.token)) {
    HttpResponse response =
        refusal(401, StoreCode::kInvalidParams, "missing or wrong token, expected `Authorization: Bearer TOKEN`");
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
    return response;
  }
  if (route != nullptr) return (this->*route)(request);
  if (allowed.empty()) return refusal(404, StoreCode::kInvalidParams, fmt::format("there is no {} here", request.path));
  HttpResponse response =
      refusal(405, StoreCode::kInvalidParams, fmt::format("{} takes {} only", request.path, allowed));
  response.headers.push_back({"Allow", allowed});
  return response;
}

HttpResponse MasterAdmin::health(const HttpRequest&) {
  return json({{"status", "ok"},
               {"role", "leader"},
               {"ha_state", "serving"},
               {"service_ready", true},
               {"leader_address", options_.address},
               {"view_version", server_.core().index().epoch()}});
}

HttpResponse MasterAdmin::role(const HttpRequest&) { return text("leader"); }

HttpResponse MasterAdmin::ha_status(const HttpRequest&) { return text("serving"); }

HttpResponse MasterAdmin::leader(const HttpRequest&) {
  return json(
      {{"present", true}, {"leader_address", options_.address}, {"view_version", server_.core().index().epoch()}});
}

Result<std::unique_ptr<net::HttpServer>> serve_master_admin(MasterAdmin& admin, net::HttpServerOptions options) {
  options.max_body_bytes = kBodyBytesMax;
  return net::HttpServer::start(std::move(options),
                                [&admin](HttpRequest request, std::shared_ptr<net::HttpExchange> exchange) {
                                  exchange->respond(admin.handle(request));
                                });
}

}  // namespace nmc::store
