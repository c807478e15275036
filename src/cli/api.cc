// `nano-mooncake api`: the OpenAI-compatible server, from its settings to its last answer.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/http_settings.h"
#include "cli/listen_address.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "http/server.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

// What the last answers get to reach their clients, though the time for draining is over.
constexpr Nanos kLastAnswersTimeout = std::chrono::seconds(1);

// How many of `wanted` connections the limit of descriptors leaves room for, once it is as high as it may be: the rest
// is better refused than left waiting. Other parts of the process get by with kOtherDescriptors.
std::size_t connections_of(std::size_t wanted) {
  constexpr rlim_t kOtherDescriptors = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, wanted + kOtherDescriptors));
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t left = limit.rlim_cur - std::min(kOtherDescriptors, limit.rlim_cur / 2);
  return std::min<rlim_t>(wanted, left);
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
  NMC_ASSIGN_OR_RETURN(http::ServerOptions options, http_options_of(settings));
  NMC_ASSIGN_OR_RETURN(Serving serving, Serving::create(settings));
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  if (!is_loopback(options.http.host) && options.api_key.empty()) {
    log_warning("whoever reaches {} can use this server: no --api-key is set", options.http.host);
  }
  options.http.max_connections = connections_of(options.http.max_connections);
  options.adapters = serving.adapters();
  options.provenance =
      evidence::provenance_json({.evidence_tier = std::string(lab::tier_of_model(settings.text("model"))),
                                 .build = lab::build_identity(),
                                 .machine = lab::machine_identity(),
                                 .model = lab::model_identity(serving.model())});
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<http::Server> server,
                       http::Server::start(std::move(options), serving.model(), serving.runtime(), &serving.store()));
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
