// What `nano-mooncake top` reads: the metrics of a server, or of a store's master.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "net/http_client.h"

namespace nmc::cli {

// Prometheus' text exposition, as far as it is one number a name.
struct Samples {
  std::map<std::string, double> plain;                                       // without labels
  std::map<std::string, std::vector<std::pair<std::string, double>>> named;  // with one label: its value, the sample

  std::optional<double> find(std::string_view name) const;
};
// Lines that are something else are left out.
Samples parse_samples(std::string_view text);

struct TopReading {
  enum class Kind { kServer, kStore };
  Kind kind = Kind::kServer;
  Json document;    // kServer: of /v1/metrics
  Samples samples;  // kStore: of /metrics
  Nanos at{0};      // by the machine's clock
};

// From whatever serves at `base`: /v1/metrics of a server, else /metrics of a master. Errors name the URL and what was
// expected there; those of http_get() come through.
Result<TopReading> read_top(const net::HttpUrl& base, const net::HttpClientOptions& options);

}  // namespace nmc::cli
