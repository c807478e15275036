#include "lab/server_reading.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace nmc::lab {
namespace {

constexpr Nanos kTimeout = std::chrono::seconds(10);
// Members of `tiers` that only grow; the others say how things are.
constexpr std::string_view kCounters[] = {"lookups",         "hits",          "misses",     "commits",
                                          "evicted_objects", "evicted_bytes", "read_bytes", "written_bytes",
                                          "write_dropped",   "errors"};

Result<Json> get_json(const ApiEndpoint& endpoint, std::string_view path, const std::vector<net::HttpHeader>& headers) {
  NMC_ASSIGN_OR_RETURN(const net::HttpResponse answer, api_get(endpoint, path, headers, kTimeout));
  const std::string where = endpoint.to_string() + std::string(path);
  if (answer.status == 401 || answer.status == 403) {
    return permission_denied("{}: status {}; expected a key: --api-key or NANO_MOONCAKE_API_KEY", where, answer.status);
  }
  if (answer.status != 200) return unavailable("{}: status {}, expected 200", where, answer.status);
  return parse_json(answer.body, where);
}

Json not_available(std::string_view why) { return {{"not_available", why}}; }

bool is_counter(const std::string& name) {
  return std::find(std::begin(kCounters), std::end(kCounters), name) != std::end(kCounters);
}

// Of the numbers that both have; false: one has shrunk.
bool add_differences(Json& to, const Json& before, const Json& after, bool (*takes)(const std::string&)) {
  for (const auto& [name, value] : after.items()) {
    if (!value.is_number() || (takes != nullptr && !takes(name))) continue;
    const auto old = before.find(name);
    if (old == before.end() || !old->is_number()) continue;
    if (value.get<double>() < old->get<double>()) return false;
    if (value.is_number_unsigned() && old->is_number_unsigned())
      to[name] = value.get<std::uint64_t>() - old->get<std::uint64_t>();
    else
      to[name] = value.get<double>() - old->get<double>();
  }
  return true;
}

bool add_tiers(Json& to, const Json& before, const Json& after) {
  for (const auto& [tier, members] : after.items()) {
    const auto old = before.find(tier);
    if (old == before.end() || !members.is_object() || !old->is_object()) continue;
    to[tier] = Json::object();
    if (!add_differences(to[tier], *old, members, is_counter)) return false;
  }
  return true;
}

void add_latency_means(Json& to, const Json& before, const Json& after) {
  for (const auto& [name, members] : after.items()) {
    const auto old = before.find(name);
    if (old == before.end() || !members.is_object() || !old->is_object()) continue;
    const double count = members.value("count", 0.0) - old->value("count", 0.0);
    if (count > 0) to[name] = (members.value("sum", 0.0) - old->value("sum", 0.0)) / count;
  }
}

Json member_or_object(const Json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_object() ? *found : Json::object();
}

}  // namespace

Result<std::string> first_model(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers) {
  NMC_ASSIGN_OR_RETURN(const Json models, get_json(endpoint, "/v1/models", headers));
  const Json* const data = models.is_object() && models.contains("data") ? &models["data"] : nullptr;
  if (data == nullptr || !data->is_array() || data->empty() || !(*data)[0].is_object() || !(*data)[0].contains("id") ||
      !(*data)[0]["id"].is_string()) {
    return corrupt("{}/v1/models: expected a list of models, got {}; say which one by --model", endpoint.to_string(),
                   describe_json(models));
  }
  return (*data)[0]["id"].get<std::string>();
}

std::string server_version(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers) {
  const auto document = get_json(endpoint, "/version", headers);
  if (!document || !document->is_object()) return "";
  const auto found = document->find("version");
  return found != document->end() && found->is_string() ? found->get<std::string>() : "";
}

Json read_metrics(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers) {
  auto document = get_json(endpoint, "/v1/metrics", headers);
  if (!document || !document->is_object()) return nullptr;
  const auto schema = document->find("schema");
  if (schema == document->end() || *schema != "nano-mooncake/metrics/v1") return nullptr;
  return *std::move(document);
}

Json server_provenance(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers) {
  const Json metrics = read_metrics(endpoint, headers);
  return metrics.is_object() && metrics.contains("provenance") ? metrics["provenance"] : Json(nullptr);
}

Json metrics_between(const Json& before, const Json& after) {
  if (before.is_null() || after.is_null()) return not_available("the server has no /v1/metrics of this kind");
  Json between = {{"tiers", Json::object()}, {"counters", Json::object()}, {"latency_mean_ms", Json::object()}};
  if (!add_tiers(between["tiers"], member_or_object(before, "tiers"), member_or_object(after, "tiers")) ||
      !add_differences(between["counters"], member_or_object(before, "counters"), member_or_object(after, "counters"),
                       nullptr))
    return not_available("the server's counters began anew during the run");
  add_latency_means(between["latency_mean_ms"], member_or_object(before, "latency"),
                    member_or_object(after, "latency"));
  return between;
}

std::map<std::string, double> parse_counters(std::string_view text) {
  std::map<std::string, double> counters;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t space = line.find(' ');
    if (line.starts_with('#') || space == line.npos || !line.substr(0, space).ends_with("_total")) continue;
    double value = 0;
    const std::string_view number = line.substr(space + 1);
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc())
      counters.emplace(line.substr(0, space), value);
  }
  return counters;
}

Result<std::map<std::string, double>> read_master(const ApiEndpoint& master) {
  NMC_ASSIGN_OR_RETURN(const net::HttpResponse answer, api_get(master, "/metrics", {}, kTimeout));
  if (answer.status != 200)
    return unavailable("{}/metrics: status {}, expected 200", master.to_string(), answer.status);
  return parse_counters(answer.body);
}

}  // namespace nmc::lab
