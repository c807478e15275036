#include "store/master_admin.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "net/http_query.h"
#include "store/codes.h"
#include "store/master_metrics.h"

namespace nmc::store {
namespace {

using net::HttpRequest;
using net::HttpResponse;

constexpr const char* kRole = "leader";
constexpr const char* kState = "serving";
constexpr const char* kProtocol = "tcp";         // how another host gets at the bytes
constexpr std::size_t kBodyBytesMax = 64 << 10;  // no route reads one

HttpResponse json(const Json& value, int status = 200) {
  return {.status = status, .content_type = "application/json; charset=utf-8", .body = dump_json(value)};
}

HttpResponse text(std::string body) { return {.content_type = "text/plain; charset=utf-8", .body = std::move(body)}; }

HttpResponse refusal(int status, StoreCode code, std::string message) {
  return json({{"success", false}, {"error_code", outcome_of(code)}, {"error_message", std::move(message)}}, status);
}

// Texts go out as clients know them, with the version of the exposition format, whatever they hold.
HttpResponse versioned_text(std::string body) {
  return {.content_type = "text/plain; version=0.0.4", .body = std::move(body)};
}

HttpResponse bad_query(const Error& error) { return refusal(400, StoreCode::kInvalidParams, error.message); }

// The value of the first parameter of that name as it stands in the query.
std::optional<std::string_view> raw_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    if (one.substr(0, one.find('=')) == name) return one.substr(std::min(name.size() + 1, one.size()));
  }
  return std::nullopt;
}

// What a client may mean by `text`: it undone from its encoding, as URLs are meant, or as it stands, since Mooncake's
// master doesn't decode keys and there are scripts that rely on it.
Result<std::vector<std::string>> spellings_of_text(std::string_view text) {
  NMC_ASSIGN_OR_RETURN(std::string decoded, net::decode_query_text(text));
  std::vector<std::string> spellings = {std::move(decoded)};
  if (spellings.front() != text) spellings.emplace_back(text);
  return spellings;
}

Result<std::vector<std::string>> spellings_of(const HttpRequest& request, std::string_view name) {
  const auto text = raw_value(request.query, name);
  if (!text || text->empty())
    return invalid_argument("the query parameter {} is missing, expected ?{}=...", name, name);
  return spellings_of_text(*text);
}

Json buffers_of(const std::vector<MasterCore::Replica>& replicas) {
  Json buffers = Json::array();
  for (const MasterCore::Replica& replica : replicas) {
    buffers.push_back({{"size_", replica.bytes},
                       {"buffer_address_", replica.offset},
                       {"protocol_", kProtocol},
                       {"transport_endpoint_", replica.segment}});
  }
  return buffers;
}

const char* state_name(SegmentState state) {
  switch (state) {
    case SegmentState::kMounted: return "MOUNTED";
    case SegmentState::kLeaving: return "UNMOUNTING";
    default: return "PARKED";
  }
}

// Numbers in the form that ids have there.
std::string uuid_of(std::uint64_t number) { return fmt::format("00000000-0000-0000-0000-{:012x}", number); }

Json detail_of(const MasterCore::SegmentInfo& segment) {
  const double share =
      segment.bytes == 0 ? 0 : static_cast<double>(segment.used_bytes) / static_cast<double>(segment.bytes);
  return {{"segment_name", segment.name},
          {"segment_id", uuid_of(segment.number)},
          {"client_id", uuid_of(segment.owner)},
          {"base_address", "0x0"},
          {"size_bytes", segment.bytes},
          {"size_human", size_text(segment.bytes)},
          {"te_endpoint", segment.name},
          {"protocol", kProtocol},
          {"status", state_name(segment.state)},
          {"allocator_used_bytes", segment.used_bytes},
          {"allocator_capacity_bytes", segment.bytes},
          {"allocator_usage_percent", 100 * share}};
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
      {"/metrics", "GET", &MasterAdmin::metrics},
      {"/metrics/summary", "GET", &MasterAdmin::metrics_summary},
      {"/health", "GET", &MasterAdmin::health},
      {"/role", "GET", &MasterAdmin::role},
      {"/ha_status", "GET", &MasterAdmin::ha_status},
      {"/leader", "GET", &MasterAdmin::leader},
      {"/kv_events/status", "GET", &MasterAdmin::kv_events_status},
      {"/query_key", "GET", &MasterAdmin::query_key},
      {"/batch_query_keys", "GET", &MasterAdmin::batch_query_keys},
      {"/get_all_keys", "GET", &MasterAdmin::get_all_keys},
      {"/get_all_segments", "GET", &MasterAdmin::get_all_segments},
      {"/query_segment", "GET", &MasterAdmin::query_segment},
      {"/get_segments_detail", "GET", &MasterAdmin::get_segments_detail},
      {"/api/v1/remove_all", "POST", &MasterAdmin::remove_all},
      // What Mooncake's master has besides, whatever the method.
      {"/api/v1/drain_jobs", "", &MasterAdmin::not_supported},
      {"/api/v1/drain_jobs/query", "", &MasterAdmin::not_supported},
      {"/api/v1/drain_jobs/cancel", "", &MasterAdmin::not_supported},
      {"/api/v1/segments/status", "", &MasterAdmin::not_supported},
      {"/api/v1/tenant_quotas", "", &MasterAdmin::not_supported},
      {"/tenant_quota_policy", "", &MasterAdmin::not_supported},
  };
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.path == request.path; });
  if (row == std::end(kRows)) return nullptr;
  if (row->method.empty() || row->method == request.method) return row->route;
  if (row->method == "GET" && request.method == "HEAD") return row->route;
  allowed = row->method == "GET" ? "GET, HEAD" : row->method;
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

// ---- the master itself ----

HttpResponse MasterAdmin::metrics(const HttpRequest&) { return versioned_text(metrics_text(server_)); }

HttpResponse MasterAdmin::metrics_summary(const HttpRequest&) {
  return versioned_text(fmt::format("role={}, state={}, service_ready=true, master={{{}}}, leader={}, view_version={}",
                                    kRole, kState, store::metrics_summary(server_), options_.address,
                                    server_.core().index().epoch()));
}

HttpResponse MasterAdmin::health(const HttpRequest&) {
  return json({{"status", "ok"},
               {"role", kRole},
               {"ha_state", kState},
               {"service_ready", true},
               {"leader_address", options_.address},
               {"view_version", server_.core().index().epoch()}});
}

HttpResponse MasterAdmin::role(const HttpRequest&) { return text(kRole); }

HttpResponse MasterAdmin::ha_status(const HttpRequest&) { return text(kState); }

HttpResponse MasterAdmin::leader(const HttpRequest&) {
  return json(
      {{"present", true}, {"leader_address", options_.address}, {"view_version", server_.core().index().epoch()}});
}

HttpResponse MasterAdmin::kv_events_status(const HttpRequest&) {
  return json({{"enabled", false},
               {"published_batches", 0},
               {"published_events", 0},
               {"dropped_events", 0},
               {"skipped_unparsed_keys", 0},
               {"invalid_event_hashes", 0}});
}

HttpResponse MasterAdmin::not_supported(const HttpRequest& request) {
  return refusal(501, StoreCode::kNotSupported,
                 fmt::format("{} is not supported: drain jobs, states of segments and tenants are not what this master "
                             "has",
                             request.path));
}

// ---- objects ----

HttpResponse MasterAdmin::query_key(const HttpRequest& request) {
  const auto spellings = spellings_of(request, "key");
  if (!spellings) return bad_query(spellings.error());
  for (const std::string& key : *spellings) {
    const auto replicas = server_.core().replicas(key);
    if (!replicas.empty()) return json({{"success", true}, {"data", buffers_of(replicas)}});
  }
  return refusal(404, StoreCode::kObjectNotFound, store_code_name(outcome_of(StoreCode::kObjectNotFound)));
}

HttpResponse MasterAdmin::batch_query_keys(const HttpRequest& request) {
  const auto list = raw_value(request.query, "keys");
  if (!list || list->empty())
    return json({{"success", false}, {"error", "no keys are given, expected ?keys=KEY,KEY,..."}}, 400);
  Json data = Json::object();
  for (std::string_view rest = *list; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (one.empty()) continue;
    const auto spellings = spellings_of_text(one);
    if (!spellings) return json({{"success", false}, {"error", spellings.error().message}}, 400);
    Json answer = {{"ok", false}, {"error", store_code_name(outcome_of(StoreCode::kObjectNotFound))}};
    const std::string* name = &spellings->front();
    for (const std::string& key : *spellings) {
      const auto replicas = server_.core().replicas(key);
      if (replicas.empty()) continue;
      answer = {{"ok", true}, {"values", buffers_of(replicas)}};
      name = &key;
      break;
    }
    data[*name] = std::move(answer);
  }
  return json({{"success", true}, {"data", std::move(data)}});
}

HttpResponse MasterAdmin::get_all_keys(const HttpRequest&) {
  std::string body;
  for (const std::string& key : server_.core().keys()) body.append(key).push_back('\n');
  return versioned_text(std::move(body));
}

HttpResponse MasterAdmin::remove_all(const HttpRequest& request) {
  if (request.header("Origin") != nullptr)
    return refusal(403, StoreCode::kInvalidParams, "pages of a browser can't remove objects");
  const auto force = net::query_value(request.query, "force");
  if (!force) return bad_query(force.error());
  const std::string wanted = force->value_or("false");
  const bool yes = wanted == "true" || wanted == "1";
  if (!yes && wanted != "false" && wanted != "0")
    return refusal(400, StoreCode::kInvalidParams, "force: expected true, 1, false or 0");
  const auto tenant = net::query_value(request.query, "tenant_id");
  if (!tenant) return bad_query(tenant.error());
  if (*tenant) return refusal(501, StoreCode::kNotSupported, "tenant_id: there are no tenants");
  return json({{"success", true}, {"removed_count", server_.remove_all(yes)}});
}

// ---- segments ----

HttpResponse MasterAdmin::get_all_segments(const HttpRequest&) {
  std::string body;
  for (const MasterCore::SegmentInfo& segment : server_.core().segments()) {
    if (segment.state == SegmentState::kMounted) body.append(segment.name).push_back('\n');
  }
  return versioned_text(std::move(body));
}

HttpResponse MasterAdmin::query_segment(const HttpRequest& request) {
  const auto spellings = spellings_of(request, "segment");
  if (!spellings) return bad_query(spellings.error());
  for (const MasterCore::SegmentInfo& segment : server_.core().segments()) {
    const bool asked = std::find(spellings->begin(), spellings->end(), segment.name) != spellings->end();
    if (!asked || segment.state != SegmentState::kMounted) continue;
    return versioned_text(
        fmt::format("{}\nUsed(bytes): {}\nCapacity(bytes): {}\n", segment.name, segment.used_bytes, segment.bytes));
  }
  return refusal(404, StoreCode::kSegmentNotFound, store_code_name(outcome_of(StoreCode::kSegmentNotFound)));
}

HttpResponse MasterAdmin::get_segments_detail(const HttpRequest&) {
  Json list = Json::array();
  for (const MasterCore::SegmentInfo& segment : server_.core().segments()) list.push_back(detail_of(segment));
  return json({{"total_segments", list.size()}, {"segments", list}});
}

Result<std::unique_ptr<net::HttpServer>> serve_master_admin(MasterAdmin& admin, net::HttpServerOptions options) {
  options.max_body_bytes = kBodyBytesMax;
  return net::HttpServer::start(std::move(options),
                                [&admin](HttpRequest request, std::shared_ptr<net::HttpExchange> exchange) {
                                  exchange->respond(admin.handle(request));
                                });
}

}  // namespace nmc::store
