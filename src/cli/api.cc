// `nano-mooncake api`: the OpenAI-compatible server, from its settings to its last answer.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/listen_address.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "http/server.h"

namespace nmc::cli {
namespace {

// What the last answers get to reach their clients, though the time for draining is over.
constexpr Nanos kLastAnswersTimeout = std::chrono::seconds(1);

http::ServerOptions server_options_of(const Settings& settings, const Serving& serving) {
  http::ServerOptions options;
  options.http.host = settings.text("host");
  options.http.port = static_cast<std::uint16_t>(settings.integer("port"));
  options.served_model_name = settings.text("served-model-name");
  options.adapters = serving.adapters();
  options.api_key = settings.text_or("api-key", "");
  options.request_timeout = nanos_of(settings, "request-timeout-s");
  return options;
}

// Running requests finish, new ones are refused; what isn't done in time is cancelled.
void drain(http::Server& server, engine::Runtime& runtime, Nanos timeout, bool quiet) {
  const Stopwatch watch;
  server.stop_accepting();
  if (!quiet) {
    fmt::print(stderr, "nano-mooncake api: draining for at most {:g} s; a second signal stops at once\n",
               to_ms(timeout) / 1e3);
  }
  if (!runtime.drain(timeout))
    log_warning("requests were still running after {:g} s and are cancelled", to_ms(timeout) / 1e3);
  if (!server.wait_idle(std::max(kLastAnswersTimeout, timeout - watch.elapsed()))) {
    log_warning("clients that didn't read their answers are cut off");
  }
}

Result<int> run(const Settings& settings) {
  const bool quiet = settings.on("quiet");
  NMC_ASSIGN_OR_RETURN(Serving serving, Serving::create(settings));
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(
      const std::unique_ptr<http::Server> server,
      http::Server::start(server_options_of(settings, serving), serving.model(), serving.runtime(), &serving.store()));
  if (!is_loopback(settings.text("host")) && !settings.has("api-key")) {
    log_warning("whoever reaches {} can use this server: no --api-key is set", settings.text("host"));
  }
  if (!quiet) fmt::print(stderr, "nano-mooncake api: {}\n", serving.description());
  fmt::print(stderr, "ready {}\n", server->url());
  NMC_RETURN_IF_ERROR(stop.wait());
  drain(*server, serving.runtime(), nanos_of(settings, "drain-timeout-s"), quiet);
  return kExitDone;
}

}  // namespace

Command api_command() {
  Command command{
      .name = "api",
      .summary = "the OpenAI-compatible server",
      .purpose =
          "Serves /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize, /v1/metrics, /metrics for "
          "Prometheus, /healthz and what /openapi.json lists besides. When it serves, one line `ready URL` appears on "
          "standard error. SIGTERM or SIGINT drains: new requests are refused, running ones "
          "finish within --drain-timeout-s, the cache is written to disk if there is one, and the exit code is 0; a "
          "second signal stops at once with 130.",
      .settings = serving_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake api --port 8000 --disk-dir /var/cache/nano-mooncake --dram-bytes 4GiB",
      .run = run,
  };
  command.settings.push_back(quiet_setting());
  return command;
}

}  // namespace nmc::cli
