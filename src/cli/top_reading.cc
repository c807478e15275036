#include "cli/top_reading.h"

#include <charconv>

namespace nmc::cli {
namespace {

constexpr std::string_view kServerSchema = "nano-mooncake/metrics/v1";
constexpr std::string_view kStoreSample = "master_total_capacity_bytes";

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Failure refused(const net::HttpUrl& url, int status) {
  if (status == 401) {
    return permission_denied(
        "{}: status 401; expected a key: --api-key or NANO_MOONCAKE_API_KEY (for a master its token)", url.to_string());
  }
  return unavailable("{}: status {}, expected 200", url.to_string(), status);
}

Failure nothing_known(const net::HttpUrl& base) {
  return not_found(
      "{}: neither /v1/metrics nor /metrics is ours, expected a nano-mooncake server or the "
      "--metrics_port of a mooncake_master",
      base.to_string());
}

Result<TopReading> reading_of_store(const net::HttpUrl& base, const net::HttpClientOptions& options) {
  const net::HttpUrl url = base.at("/metrics");
  NMC_ASSIGN_OR_RETURN(const net::HttpResponse answer, net::http_get(url, options));
  if (answer.status == 404) return nothing_known(base);
  if (answer.status != 200) return refused(url, answer.status);
  TopReading reading{.kind = TopReading::Kind::kStore, .samples = parse_samples(answer.body)};
  if (!reading.samples.find(kStoreSample)) return nothing_known(base);
  reading.at = real_clock().now();
  return reading;
}

}  // namespace

std::optional<double> Samples::find(std::string_view name) const {
  const auto it = plain.find(std::string(name));
  return it == plain.end() ? std::nullopt : std::optional(it->second);
}

Samples parse_samples(std::string_view text) {
  Samples samples;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with('#')) continue;
    const std::size_t space = line.rfind(' ');
    if (space == line.npos) continue;
    const std::optional<double> value = number_of(line.substr(space + 1));
    if (!value) continue;
    const std::string_view key = line.substr(0, space);
    const std::size_t brace = key.find('{');
    if (brace == key.npos) {
      samples.plain.emplace(key, *value);
      continue;
    }
    const std::size_t open = key.find('"'), close = key.rfind('"');
    if (open == key.npos || close <= open || key.find("\",", open) != key.npos) continue;
    samples.named[std::string(key.substr(0, brace))].emplace_back(key.substr(open + 1, close - open - 1), *value);
  }
  return samples;
}

Result<TopReading> read_top(const net::HttpUrl& base, const net::HttpClientOptions& options) {
  const net::HttpUrl url = base.at("/v1/metrics");
  NMC_ASSIGN_OR_RETURN(const net::HttpResponse answer, net::http_get(url, options));
  if (answer.status == 404) return reading_of_store(base, options);
  if (answer.status != 200) return refused(url, answer.status);
  NMC_ASSIGN_OR_RETURN(Json document, parse_json(answer.body, url.to_string()));
  if (!document.is_object() || document.value("schema", "") != kServerSchema) {
    return corrupt("{}: expected a document of schema {}, got {}", url.to_string(), kServerSchema,
                   describe_json(document));
  }
  return TopReading{.document = std::move(document), .at = real_clock().now()};
}

}  // namespace nmc::cli
