// `nano-mooncake worker`: one prefill or decode worker as a process. A server of --mode pd-process starts those of its
// host; on other hosts they are started by hand.
#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/listen_address.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "cli/token_settings.h"
#include "cli/worker_processes.h"
#include "engine/request_limits.h"
#include "engine/worker_service.h"

namespace nmc::cli {
namespace {

Result<engine::WorkerServiceOptions> service_options(const Settings& settings) {
  engine::WorkerServiceOptions options;
  options.role = settings.text("role");
  options.name = settings.text_or("name", options.role);
  NMC_ASSIGN_OR_RETURN(options.runtime, runtime_options_of(settings));
  NMC_ASSIGN_OR_RETURN(options.token, token_of(settings));
  NMC_ASSIGN_OR_RETURN(const net::Address address, parse_listen_address(settings.text("listen")));
  options.tcp_host = settings.text_or("kv-host", "");
  if (address.carrier == net::Carrier::kUnix) {
    options.unix_path = address.path;
  } else {
    options.tcp_host = address.host;
    options.tcp_port = address.port;
  }
  options.insecure = settings.on("insecure");
  if (!options.tcp_host.empty() && !is_loopback(options.tcp_host) && options.token.empty() && !options.insecure)
    return permission_denied(
        "--listen: {} opens the worker to other hosts, who have to prove a token: set "
        "NANO_MOONCAKE_TOKEN (or --token-file), or allow it without one by --insecure",
        options.tcp_host);
  options.handover_lease = nanos_of(settings, "handover-lease-s");
  return options;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(engine::WorkerServiceOptions options, service_options(settings));
  ThreadPool pool(threads_of(settings));
  model::PackOptions pack;
  if (settings.has("shared-weights"))
    pack = {.share = model::PackOptions::Share::kMap, .shared_file = settings.text("shared-weights")};
  NMC_ASSIGN_OR_RETURN(const model::Model model,
                       model::load_model(settings.text("model"), dtype_of(settings), pool, pack));
  NMC_ASSIGN_OR_RETURN(const std::vector<http::ServedAdapter> adapters, load_adapters(settings, model, pool));
  for (const http::ServedAdapter& adapter : adapters) options.adapters.push_back(adapter.adapter);
  const kv::Namespace ns = model.kv_namespace(options.runtime.block_tokens);
  NMC_ASSIGN_OR_RETURN(store::StoreOptions memory, store_options_of(settings, ns.layout.block_bytes()));
  if (memory.server.starts_with("unix:")) options.store = memory.server;
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<store::Store> store, store::Store::create(std::move(memory)));
  options.runtime.eos_ids = model.eos_ids();
  options.runtime = engine::with_context_of(std::move(options.runtime), model.config);
  NMC_ASSIGN_OR_RETURN(const auto service, engine::WorkerService::start(options, *model.decoder, ns, *store, pool));
  const net::Address tcp{.host = options.tcp_host, .port = service->tcp_port()};
  fmt::print(stderr, "ready {}\n", options.unix_path.empty() ? tcp.to_string() : "unix:" + options.unix_path);
  NMC_RETURN_IF_ERROR(stop.wait());
  return kExitDone;
}

}  // namespace

Command worker_command() {
  Command command{
      .name = "worker",
      .summary = "one prefill or decode worker of a server of --mode pd-process",
      .purpose =
          "Computes what a server (nano-mooncake api --mode pd-process --remote-workers) gives it, and passes KV on to "
          "other workers. Model, dtype, block size and --transfer must be the server's; a worker that differs is "
          "refused "
          "with both named. The server starts the workers of its own host by itself. When it serves, one line `ready "
          "ADDRESS` appears on standard error; SIGTERM or SIGINT ends it.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "NANO_MOONCAKE_TOKEN=... nano-mooncake worker --role decode --listen 10.0.0.7:9000 --transfer tcp",
      .run = run,
  };
  command.settings = {
      {.name = "role",
       .kind = Kind::kChoice,
       .placeholder = "prefill|decode",
       .default_text = "decode",
       .help = "What it is for.",
       .choices = {"prefill", "decode"},
       .source = Source::kFlagOnly},
      {.name = "listen",
       .kind = Kind::kText,
       .placeholder = "HOST:PORT|unix:PATH",
       .default_text = "127.0.0.1:9000",
       .help = "Where the server reaches it; port 0 picks a free one. Beyond this host it takes a token "
               "(NANO_MOONCAKE_TOKEN) or --insecure.",
       .accepts = [](std::string_view text) { return parse_listen_address(text).has_value(); },
       .accepted = "HOST:PORT or unix:PATH",
       .source = Source::kFlagOnly},
      {.name = "kv-host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "",
       .help = "With --listen unix:PATH and --transfer tcp: the address at which other workers take KV from it.",
       .source = Source::kFlagOnly},
      {.name = "name",
       .kind = Kind::kText,
       .placeholder = "NAME",
       .default_text = "",
       .help = "What it is called in messages. Default: its role.",
       .source = Source::kFlagOnly},
      {.name = "shared-weights",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "Weights that its server has packed. Default: it packs its own.",
       .source = Source::kFlagOnly},
      {.name = "insecure",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Listen beyond this host without a token.",
       .source = Source::kFlagOnly},
  };
  std::vector<Setting> serving = serving_settings_for(worker_serving_flags());
  set_default(serving, "transfer", "tcp");
  for (Setting& setting : serving) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
