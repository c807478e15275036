// `mooncake_http_metadata_server`: the transfer engine's metadata over HTTP, as a process of its own.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/listen_address.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "store/metadata_service.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr Nanos kLastAnswersTimeout = std::chrono::seconds(1);  // to reach their clients, once a signal has come

void describe(const store::MetadataService& service, const std::string& url) {
  const store::MetadataLimits& limits = service.limits();
  fmt::print(stderr,
             "nano-mooncake http-metadata-server: clients take {}/metadata; kept in memory, at most {} keys, {} a body "
             "and {} in all\n",
             url, limits.max_keys, format_bytes(limits.max_body_bytes), format_bytes(limits.max_total_bytes));
}

Result<int> run(const Settings& settings) {
  net::HttpServerOptions options;
  options.host = settings.text("host");
  options.port = static_cast<std::uint16_t>(settings.integer("port"));
  store::MetadataService service;
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<net::HttpServer> server, store::serve_metadata(service, options));
  if (!is_loopback(options.host)) {
    log_warning("whoever reaches {} can read and change the metadata: nothing asks for a key", options.host);
  }
  if (!settings.on("quiet")) describe(service, server->url());
  fmt::print(stderr, "ready {}\n", server->url());
  NMC_RETURN_IF_ERROR(stop.wait());
  server->stop_accepting();
  if (!server->wait_idle(kLastAnswersTimeout)) log_warning("clients that didn't read their answers are cut off");
  return kExitDone;
}

// Address and port are this command's own. Those of the API server, which may stand in a shared file or environment,
// are passed over: an address that was opened for it, behind its key, must not open this server as well.
std::vector<Setting> metadata_settings() {
  std::vector<Setting> settings = {
      {.name = "host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help = "Address to listen on. Only this host reaches the default; Mooncake's own server listens on 0.0.0.0, "
               "which has to be asked for here, because whoever reaches it can change every entry. By this flag only.",
       .source = Source::kFlagOnly},
      {.name = "port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "8080",
       .help = "TCP port; 0 picks a free one, which the line `ready URL` names. By this flag only.",
       .low = 0,
       .high = 65'535,
       .source = Source::kFlagOnly},
      quiet_setting(),
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) {
    if (setting.name == "log-level") {
      setting.help += " Mooncake's names, in capitals and with CRITICAL, are taken too.";
      for (const char* name : {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}) setting.choices.push_back(name);
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace

Command http_metadata_server_command() {
  return {
      .name = "http-metadata-server",
      .link = "mooncake_http_metadata_server",
      .summary = "the transfer engine's metadata over HTTP",
      .purpose =
          "Keeps what nodes of the transfer engine publish about themselves: GET, PUT and DELETE /metadata?key=KEY, "
          "and "
          "GET /health. Clients take http://HOST:PORT/metadata as their metadata server. Everything is in memory and "
          "ends with the process. When it serves, one line `ready URL` appears on standard error. SIGTERM or SIGINT "
          "ends it with exit code 0.\n\nAlso run as mooncake_http_metadata_server; flags may be spelled with dashes or "
          "underscores.",
      .settings = metadata_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "mooncake_http_metadata_server --host=127.0.0.1 --port=8080",
      .run = run,
  };
}

}  // namespace nmc::cli
