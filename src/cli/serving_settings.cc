#include "cli/serving_settings.h"

#include <algorithm>

#include "base/check.h"
#include "cli/http_settings.h"
#include "cli/token_settings.h"
#include "net/address.h"

namespace nmc::cli {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kTiB = std::int64_t{1} << 40;

bool is_adapter_list(std::string_view text) { return parse_adapter_list(text).has_value(); }

std::vector<Setting> model_settings() {
  return {
      {.name = "model",
       .kind = Kind::kText,
       .placeholder = "PATH|tiny|smollm2",
       .default_text = "tiny",
       .help = "A checkpoint folder in Hugging Face layout, or a GGUF file; tiny: random weights from a fixed seed, "
               "made in "
               "memory; smollm2: what `make model` fetched."},
      {.name = "served-model-name",
       .kind = Kind::kText,
       .placeholder = "NAME",
       .default_text = "nano-mooncake",
       .help = "The name by which requests ask for the model."},
      {.name = "lora-modules",
       .kind = Kind::kText,
       .placeholder = "NAME=DIR[,...]",
       .default_text = "",
       .help = "Low-rank adapters in PEFT layout, served beside the model under their names. Default: none.",
       .accepts = is_adapter_list,
       .accepted = "NAME=DIR, several separated by commas"},
      {.name = "dtype",
       .kind = Kind::kChoice,
       .placeholder = "bf16|f32",
       .default_text = "bf16",
       .help = "Type of weights and KV in memory. Checkpoints in f16 keep their 16-bit weights with bf16.",
       .choices = {"bf16", "f32"}},
      {.name = "threads",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "0",
       .help = "Threads that compute; 0: as many as CPUs this process may use. Results don't depend on it.",
       .low = 0,
       .high = 1024},
  };
}

bool is_remote_workers(std::string_view text) { return parse_remote_workers(text).has_value(); }

std::vector<Setting> runtime_settings() {
  return {
      {.name = "mode",
       .kind = Kind::kChoice,
       .placeholder = "monolithic|pd|pd-process",
       .default_text = "monolithic",
       .help = "One worker for both stages, or prefill and decode on workers of their own: threads of this process, or "
               "processes that may die without harm.",
       .choices = {"monolithic", "pd", "pd-process"}},
      {.name = "reuse",
       .kind = Kind::kChoice,
       .placeholder = "none|local|global",
       .default_text = "global",
       .help = "Whose KV blocks a request may start from: nobody's, those of its own worker, all workers'.",
       .choices = {"none", "local", "global"}},
      {.name = "prefill",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "Prefill workers of mode pd-process; mode pd has one.",
       .low = 0,
       .high = 32},
      {.name = "decode",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "Decode workers of mode pd-process; mode pd has one.",
       .low = 0,
       .high = 32},
      {.name = "router",
       .kind = Kind::kChoice,
       .placeholder = "POLICY",
       .default_text = "prefix+load",
       .help = "How a worker is chosen among several: in turn, by the fewest tokens to do, by the longest known "
               "prefix, or by the fewest tokens until the request is done, known prefix deducted.",
       .choices = {"round-robin", "least-load", "prefix", "prefix+load"}},
      {.name = "recovery",
       .kind = Kind::kChoice,
       .placeholder = "fail|retry-once|retry-other",
       .default_text = "retry-once",
       .help = "What becomes of a request whose worker process died: it fails; it goes on, once, at another or at the "
               "same one restarted; the same, but never at the one that died.",
       .choices = {"fail", "retry-once", "retry-other"}},
      {.name = "worker-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "5",
       .help = "Seconds of silence after which a worker process is given up and, if it is ours, killed.",
       .low = 1,
       .high = 3600},
      {.name = "handover-lease-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "10",
       .help = "Seconds that a prefill worker process keeps KV for a decode worker that gives no sign of life.",
       .low = 1,
       .high = 3600},
      {.name = "remote-workers",
       .kind = Kind::kText,
       .placeholder = "ROLE@HOST:PORT[,...]",
       .default_text = "",
       .help = "Further workers of mode pd-process on other hosts, started there by `nano-mooncake worker`: "
               "decode@10.0.0.7:9000. Takes --transfer tcp. Default: none.",
       .accepts = is_remote_workers,
       .accepted = "prefill@HOST:PORT or decode@HOST:PORT, several separated by commas"},
      {.name = "worker-host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help = "With --transfer tcp: the address at which workers of this host give KV to others. Beyond loopback it "
               "takes a token.",
       .source = Source::kEverywhere},
      {.name = "transfer",
       .kind = Kind::kChoice,
       .placeholder = "direct|shm|tcp",
       .default_text = "direct",
       .help = "How KV goes from prefill to decode: block names, or a snapshot through shared memory or a socket.",
       .choices = {"direct", "shm", "tcp"}},
      {.name = "block-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "16",
       .help = "Tokens in one KV block.",
       .low = 1,
       .high = 1024},
      {.name = "max-queue",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "256",
       .help = "Requests that may wait; one more is answered 429.",
       .low = 1,
       .high = 1'000'000},
      {.name = "max-running",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "64",
       .help = "Sequences computed together.",
       .low = 1,
       .high = 65'536},
      {.name = "max-batch-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "256",
       .help = "Tokens of one step: one for each decoding sequence, the rest for prefill.",
       .low = 1,
       .high = 65'536},
      {.name = "max-context",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "0",
       .help = "Tokens of a prompt and its answer together; 0: what the model allows.",
       .low = 0,
       .high = 1 << 24},
  };
}

bool is_store(std::string_view text) { return text == "embedded" || net::Address::parse(text).has_value(); }

std::vector<Setting> cache_settings() {
  return {
      {.name = "store",
       .kind = Kind::kText,
       .placeholder = "embedded|unix:PATH|HOST:PORT",
       .default_text = "embedded",
       .help =
           "Where KV blocks are kept. embedded: in this process. unix:PATH: in the store of this host's "
           "mooncake_master, "
           "which several servers share; what one of them computed is there for all. HOST:PORT: in this process, with "
           "that store as a tier below.",
       .accepts = is_store,
       .accepted = "embedded, unix:PATH or HOST:PORT"},
      {.name = "tls-ca",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help =
           "With --store HOST:PORT: the authority (PEM) that signed the certificate of that store, which then has to "
           "name HOST. Default: without TLS."},
      {.name = "dram-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "1GiB",
       .help =
           "Memory for KV blocks, those in use and those cached; reserved at start. With --store unix:PATH: what this "
           "server brings to that store; it may be 0.",
       .low = kMiB,
       .high = 64 * kTiB,
       .or_zero = true},
      {.name = "tail-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "",
       .help =
           "Part of it for the ends of finished prompts, which let an exact repeat compute nothing; 0: none is kept. "
           "Default: 5 % of --dram-bytes.",
       .low = 0,
       .high = 64 * kTiB},
      {.name = "disk-dir",
       .kind = Kind::kText,
       .placeholder = "DIR",
       .default_text = "",
       .help = "Folder where the cache is kept on disk too, so that a restart is warm. Default: none."},
      {.name = "disk-bytes",
       .kind = Kind::kBytes,
       .placeholder = "N",
       .default_text = "8GiB",
       .help = "How much of the disk it may take.",
       .low = kMiB,
       .high = 1024 * kTiB},
  };
}

std::vector<Setting> server_settings() {
  return {
      {.name = "host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help = "Address to listen on. Beyond loopback, set --api-key too."},
      {.name = "port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "8000",
       .help = "TCP port; 0 picks a free one, which the line `ready URL` names.",
       .low = 0,
       .high = 65'535},
      {.name = "api-key",
       .kind = Kind::kText,
       .placeholder = "KEY",
       .default_text = "",
       .help = "Requests must carry it as `Authorization: Bearer KEY`. Default: none is asked for. Other users of this "
               "host can read flags; NANO_MOONCAKE_API_KEY is private.",
       .secret = true},
      {.name = "request-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "600",
       .help = "Seconds from a request's arrival to the end of its answer; 0: no limit.",
       .low = 0,
       .high = 86'400},
      {.name = "drain-timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "30",
       .help = "Seconds that running requests get to finish after SIGTERM or SIGINT; a second signal stops at once.",
       .low = 0,
       .high = 86'400},
      {.name = "trace-out",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "Where to write what each request spent its time on, stage by stage, in Chrome's trace format, which "
               "Perfetto (ui.perfetto.dev) opens; replaced if it is there. Default: not written."},
      {.name = "log-level",
       .kind = Kind::kChoice,
       .placeholder = "LEVEL",
       .default_text = "warning",
       .help = "Least serious messages shown on standard error: debug, info, warning, error or off.",
       .choices = {"debug", "info", "warning", "error", "off"}},
  };
}

}  // namespace

std::optional<std::vector<AdapterSpec>> parse_adapter_list(std::string_view text) {
  std::vector<AdapterSpec> adapters;
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    const std::size_t equals = one.find('=');
    if (equals == 0 || equals == one.npos || equals + 1 == one.size()) return std::nullopt;
    adapters.push_back({std::string(one.substr(0, equals)), std::string(one.substr(equals + 1))});
    if (one.size() == text.size()) return adapters;
    text.remove_prefix(one.size() + 1);
  }
}

std::optional<std::vector<RemoteWorker>> parse_remote_workers(std::string_view text) {
  std::vector<RemoteWorker> workers;
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    const std::size_t at = one.find('@');
    const std::string_view role = one.substr(0, at);
    if (at == one.npos || (role != "prefill" && role != "decode")) return std::nullopt;
    const auto address = net::Address::parse(one.substr(at + 1));
    if (!address || address->carrier != net::Carrier::kTcp) return std::nullopt;
    workers.push_back({std::string(role), *address});
    if (one.size() == text.size()) return workers;
    text.remove_prefix(one.size() + 1);
  }
}

std::vector<Setting> serving_settings() {
  std::vector<Setting> all;
  for (const auto& group :
       {server_settings(), http_settings(), model_settings(), runtime_settings(), cache_settings(), token_settings()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

std::vector<Setting> serving_settings_for(std::span<const std::string_view> flags) {
  std::vector<Setting> settings = serving_settings();
  for (Setting& setting : settings) {
    if (std::find(flags.begin(), flags.end(), setting.name) == flags.end()) setting.source = Source::kFileOrVariable;
  }
  return settings;
}

void set_default(std::vector<Setting>& settings, std::string_view name, std::string default_text) {
  const auto it = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.name == name; });
  NMC_REQUIRE(it != settings.end(), "setting={}", name);
  it->default_text = std::move(default_text);
}

Setting quiet_setting() {
  return {.name = "quiet",
          .kind = Kind::kSwitch,
          .default_text = "false",
          .help = "Nothing on standard error but warnings and errors.",
          .source = Source::kFlagOnly};
}

std::vector<Setting> report_settings() {
  return {
      {.name = "format",
       .kind = Kind::kChoice,
       .placeholder = "table|json|csv|markdown",
       .default_text = "table",
       .help = "How results are written.",
       .choices = {"table", "json", "csv", "markdown"},
       .source = Source::kFlagOnly},
      {.name = "output",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "Write them to FILE, whole or not at all, making parent folders. Default: standard output.",
       .source = Source::kFlagOnly},
      quiet_setting(),
  };
}

}  // namespace nmc::cli
