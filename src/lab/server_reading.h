// What a server says of itself before and after a run, as far as it does: the name of its model, its version, and the
// counters of a nano-mooncake server or of a store's master.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lab/api_endpoint.h"

namespace nmc::lab {

// The first model that /v1/models lists. Errors say what was there instead.
Result<std::string> first_model(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers);

// A member of /version; "" where there is none.
std::string server_version(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers);

// The document of /v1/metrics; null where there is none of ours.
Json read_metrics(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers);

// Where the figures of a nano-mooncake server come from, as it says in that document; null where nothing does.
Json server_provenance(const ApiEndpoint& endpoint, const std::vector<net::HttpHeader>& headers);

// What was counted between two such documents: {"tiers": {"dram": {"hits", ...}}, "counters": {...}, "latency_mean_ms":
// {"ttft_ms", ...}}. {"not_available": why} where one is null or the server began anew in between.
Json metrics_between(const Json& before, const Json& after);

// Counters of a master's /metrics, by name: those that end in "_total".
Result<std::map<std::string, double>> read_master(const ApiEndpoint& master);
std::map<std::string, double> parse_counters(std::string_view text);

}  // namespace nmc::lab
