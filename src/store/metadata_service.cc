#include "store/metadata_service.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "net/http_query.h"

namespace nmc::store {
namespace {

using net::HttpRequest;
using net::HttpResponse;

// Keys with this in them say where a server is reached: another server must not take one over unnoticed.
constexpr std::string_view kExclusive = "rpc_meta";
constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

// Texts too go out as application/json, as clients know it from the service this one stands in for.
HttpResponse answer(int status, std::string body) { return {.status = status, .body = std::move(body)}; }

HttpResponse plain(int status, std::string body) {
  return {.status = status, .content_type = "text/plain; charset=utf-8", .body = std::move(body)};
}

HttpResponse wrong_method(const HttpRequest& request, std::string allowed) {
  HttpResponse response = plain(405, fmt::format("{} takes {} only", request.path, allowed));
  response.headers.push_back({"Allow", std::move(allowed)});
  return response;
}

std::string_view strip(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kWhiteSpace), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

}  // namespace

HttpResponse MetadataService::handle(const HttpRequest& request) {
  if (request.path == "/health") {
    const bool known = request.method == "GET" || request.method == "HEAD";
    return known ? plain(200, "OK") : wrong_method(request, "GET, HEAD");
  }
  if (request.path != "/metadata") return plain(404, "there is nothing here but /metadata?key=KEY and /health");
  const bool gets = request.method == "GET";
  const bool puts = request.method == "PUT";
  if (!gets && !puts && request.method != "DELETE") return wrong_method(request, "GET, PUT, DELETE");
  const Result<std::optional<std::string>> given = net::query_value(request.query, "key");
  if (!given) return answer(400, fmt::format("metadata key: {}", given.error().message));
  const std::string_view key = strip(given->has_value() ? **given : std::string_view());
  if (key.empty()) return answer(400, "metadata key is required");
  if (gets) return get(key);
  if (puts) return put(key, request.body);
  return remove(key) ? answer(200, "metadata deleted") : answer(404, "metadata not found");
}

HttpResponse MetadataService::get(std::string_view key) const {
  MutexLock lock(mutex_);
  const auto it = entries_.find(key);
  return it == entries_.end() ? answer(404, "metadata not found") : answer(200, it->second);
}

HttpResponse MetadataService::put(std::string_view key, std::string_view body) {
  if (body.size() > limits_.max_body_bytes) {
    return answer(413, fmt::format("metadata body of {} bytes is larger than {}", body.size(), limits_.max_body_bytes));
  }
  std::string kept(body);  // copied, and what it replaces freed, outside the lock
  MutexLock lock(mutex_);
  const auto it = entries_.find(key);
  const bool is_new = it == entries_.end();
  if (!is_new && key.find(kExclusive) != std::string_view::npos) {
    return it->second == body ? answer(200, "metadata unchanged") : answer(400, "Duplicate rpc_meta key not allowed");
  }
  if (is_new && entries_.size() >= limits_.max_keys) {
    return answer(507, fmt::format("metadata is full: {} keys, delete some first", entries_.size()));
  }
  const std::size_t bytes = bytes_ + body.size() + (is_new ? key.size() : 0) - (is_new ? 0 : it->second.size());
  if (bytes > limits_.max_total_bytes) {
    return answer(507, fmt::format("metadata is full: {} bytes would be more than {}, delete some keys first", bytes,
                                   limits_.max_total_bytes));
  }
  bytes_ = bytes;
  if (is_new) {
    entries_.emplace(key, std::move(kept));
  } else {
    it->second.swap(kept);
  }
  return answer(200, "metadata updated");
}

bool MetadataService::remove(std::string_view key) {
  MutexLock lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  bytes_ -= it->first.size() + it->second.size();
  entries_.erase(it);
  return true;
}

MetadataService::Stats MetadataService::stats() const {
  MutexLock lock(mutex_);
  return {.keys = entries_.size(), .bytes = bytes_};
}

Result<std::unique_ptr<net::HttpServer>> serve_metadata(MetadataService& service, net::HttpServerOptions options) {
  options.max_body_bytes = service.limits().max_body_bytes;
  return net::HttpServer::start(std::move(options),
                                [&service](HttpRequest request, std::shared_ptr<net::HttpExchange> exchange) {
                                  exchange->respond(service.handle(request));
                                });
}

}  // namespace nmc::store
