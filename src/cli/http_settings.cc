#include "cli/http_settings.h"

#include "base/check.h"
#include "cli/secret.h"
#include "cli/serving.h"
#include "http/cors.h"

namespace nmc::cli {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kDay = 86'400;

bool is_origin_list(std::string_view text) { return parse_origin_list(text).has_value(); }

std::vector<Setting> access_settings() {
  return {
      {.name = "api-key-file",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "A file that holds the key instead; --api-key wins over it. White space around the key doesn't count."},
      {.name = "cors-origin",
       .kind = Kind::kText,
       .placeholder = "ORIGIN[,...]",
       .default_text = "",
       .help = "Origins whose pages a browser lets read answers, as https://example.org:8443, or * for all. "
               "Credentials are never allowed: pages send the key by themselves. Default: none.",
       .accepts = is_origin_list,
       .accepted = "* or SCHEME://HOST[:PORT] in lower case, several separated by commas"},
  };
}

}  // namespace

std::vector<Setting> http_settings() {
  std::vector<Setting> settings = access_settings();
  const std::vector<Setting> limits = {
      {.name = "queue-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "0",
       .help =
           "Seconds that a request may wait for a worker; then it is answered 503 with Retry-After. 0: no limit but "
           "--request-timeout-s.",
       .low = 0,
       .high = kDay},
      {.name = "max-connections",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "4096",
       .help = "Connections open at once, within the limit of descriptors, which is raised for them as far as it may "
               "be; one "
               "more is answered 503 with Retry-After and closed.",
       .low = 1,
       .high = 1'000'000},
      {.name = "max-header-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "64KiB",
       .help = "A request's line and headers together; more is answered 431.",
       .low = kKiB,
       .high = 1024 * kKiB},
      {.name = "max-body-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "8MiB",
       .help = "A request's body; more is answered 413, unread.",
       .low = kKiB,
       .high = kGiB},
      {.name = "max-unsent-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "1MiB",
       .help = "Of a stream, what its reader may leave unread beyond the kernel's buffers; then it is cut off.",
       .low = kKiB,
       .high = kGiB},
      {.name = "idle-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "75",
       .help = "Seconds that a connection may be open between two requests.",
       .low = 1,
       .high = kDay},
      {.name = "write-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "30",
       .help = "Seconds after which a client that takes or acknowledges nothing of what it is sent is cut off.",
       .low = 1,
       .high = kDay},
      {.name = "heartbeat-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "15",
       .help = "Seconds of silence after which a stream gets a comment, so that a client that vanished shows within "
               "--write-timeout-s.",
       .low = 1,
       .high = kDay},
  };
  settings.insert(settings.end(), limits.begin(), limits.end());
  return settings;
}

std::optional<std::vector<std::string>> parse_origin_list(std::string_view text) {
  std::vector<std::string> origins;
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    if (!http::is_cors_origin(one)) return std::nullopt;
    origins.emplace_back(one);
    if (one.size() == text.size()) return origins;
    text.remove_prefix(one.size() + 1);
  }
}

Result<http::ServerOptions> http_options_of(const Settings& settings) {
  http::ServerOptions options;
  options.http.host = settings.text("host");
  options.http.port = static_cast<std::uint16_t>(settings.integer("port"));
  options.http.max_connections = settings.count("max-connections");
  options.http.max_header_bytes = settings.bytes("max-header-bytes");
  options.http.max_body_bytes = settings.bytes("max-body-bytes");
  options.http.max_unsent_bytes = settings.bytes("max-unsent-bytes");
  options.http.idle_timeout = nanos_of(settings, "idle-timeout-s");
  options.http.write_timeout = nanos_of(settings, "write-timeout-s");
  options.http.heartbeat_interval = nanos_of(settings, "heartbeat-s");
  options.served_model_name = settings.text("served-model-name");
  NMC_ASSIGN_OR_RETURN(options.api_key, secret_of(settings, "api-key", "api-key-file", "a key"));
  options.request_timeout = nanos_of(settings, "request-timeout-s");
  options.queue_timeout = nanos_of(settings, "queue-timeout-s");
  if (settings.has("cors-origin")) {
    const auto origins = parse_origin_list(settings.text("cors-origin"));
    NMC_ASSERT(origins.has_value(), "cors-origin={}", settings.text("cors-origin"));
    options.cors_origins = *origins;
  }
  return options;
}

}  // namespace nmc::cli
