#include "cli/slo_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cli/secret.h"

namespace nmc::cli {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::string_view kSystemAuthorities = "/etc/ssl/certs/ca-certificates.crt";
constexpr std::size_t kRatesMax = 100;
constexpr double kDurationDefault = 30;

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == text.npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::vector<double>> parse_rates(std::string_view text) {
  std::vector<double> rates;
  for (const std::string_view part : split(text)) {
    const auto rate = number_of<double>(part);
    if (!rate || !std::isfinite(*rate) || *rate <= 0 || *rate > 1e6 || rates.size() == kRatesMax) return std::nullopt;
    rates.push_back(*rate);
  }
  return rates;
}

std::optional<lab::TokenRange> parse_token_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == text.npos) return std::nullopt;
  const auto low = number_of<std::uint32_t>(text.substr(0, dash)),
             high = number_of<std::uint32_t>(text.substr(dash + 1));
  if (!low || !high || *low > *high) return std::nullopt;
  return lab::TokenRange{.low = *low, .high = *high};
}

std::optional<std::vector<lab::WatchedProcess>> parse_processes(std::string_view text) {
  std::vector<lab::WatchedProcess> processes;
  std::set<std::string_view> names;
  for (const std::string_view part : split(text)) {
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == part.npos) return std::nullopt;
    const auto pid = number_of<std::int32_t>(part.substr(equals + 1));
    if (!pid || *pid <= 0 || !names.insert(part.substr(0, equals)).second) return std::nullopt;
    processes.push_back({.name = std::string(part.substr(0, equals)), .pid = *pid});
  }
  return processes;
}

bool is_rates(std::string_view text) { return parse_rates(text).has_value(); }
bool is_rate(std::string_view text) { return text.find(',') == text.npos && is_rates(text); }
bool is_token_range(std::string_view text) { return parse_token_range(text).has_value(); }
bool is_processes(std::string_view text) { return parse_processes(text).has_value(); }
bool is_lengths(std::string_view text) { return lab::TokenLengths::parse(text).has_value(); }

constexpr const char* kLengthForms = "a number of tokens, LOW-HIGH, or lognormal:MEDIAN:SIGMA:MAX";

std::vector<Setting> target_settings() {
  return {
      {.name = "url",
       .placeholder = "URL",
       .default_text = "http://127.0.0.1:8000",
       .help = "Of the server, http or https, with or without /v1 at its end."},
      {.name = "served-model-name",
       .placeholder = "NAME",
       .help = "The model to ask for. Default: the first one that the server lists."},
      {.name = "tls-ca",
       .placeholder = "FILE",
       .help = "With https: certificates (PEM) of the authorities that are trusted. Default: the system's."},
      {.name = "api-key-file", .placeholder = "FILE", .help = "A file that holds the key; --api-key wins over it."},
      {.name = "chat", .kind = Kind::kSwitch, .default_text = "false", .help = "Ask /v1/chat/completions, in words."},
      {.name = "no-stream",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Ask for whole answers: there is neither TTFT nor ITL then."},
      {.name = "stop-at-eos",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Let answers end where the model ends them, and don't send `ignore_eos`, which not every server knows. "
               "Default: all have the planned length."},
      {.name = "text-prompts",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help =
           "Send words instead of token ids, for servers that take no ids. How many tokens they are, `usage` tells."},
  };
}

std::vector<Setting> workload_settings() {
  return {
      {.name = "workload",
       .kind = Kind::kChoice,
       .default_text = "shared-prefix",
       .help = "shared-prefix: one system prefix, different questions. long-document: a few documents, different "
               "questions on them. distinct: nothing in common. namespaces: equal prompts under several cache salts. "
               "trace: the blocks and lengths of --trace.",
       .choices = {"shared-prefix", "long-document", "distinct", "namespaces", "trace"}},
      {.name = "prompt-tokens",
       .placeholder = "LENGTH",
       .default_text = "256",
       .help = "Of prompts: a number, LOW-HIGH (uniform), or lognormal:MEDIAN:SIGMA:MAX.",
       .accepts = is_lengths,
       .accepted = kLengthForms},
      {.name = "output-tokens",
       .placeholder = "LENGTH",
       .default_text = "32",
       .help = "Of answers, likewise.",
       .accepts = is_lengths,
       .accepted = kLengthForms},
      {.name = "shared-part",
       .kind = Kind::kNumber,
       .placeholder = "PART",
       .help = "Of a prompt that is its common prefix. Default: 0.75, for long-document 0.9.",
       .low = 0,
       .high = 1},
      {.name = "groups",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .help = "Different prefixes, or documents, or namespaces. Default: 1, for long-document and namespaces 4.",
       .low = 1,
       .high = 1'000'000},
      {.name = "token-ids",
       .placeholder = "LOW-HIGH",
       .default_text = "10-255",
       .help = "Ids that prompts are made of; the model's vocabulary has to have all of them.",
       .accepts = is_token_range,
       .accepted = "two token ids, LOW-HIGH"},
      {.name = "trace",
       .placeholder = "FILE",
       .help =
           "Recorded requests in a form that `nano-mooncake simulate` reads, plain or compressed with zstd; they are "
           "sent in the order of their times."},
      {.name = "time-scale",
       .kind = Kind::kNumber,
       .placeholder = "X",
       .default_text = "1",
       .help = "Times of the trace are multiplied by it: 0.5 is twice as fast.",
       .low = 0,
       .high = 1'000'000},
      {.name = "trace-block-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "512",
       .help = "Tokens that one hash of the trace stands for.",
       .low = 1,
       .high = 1 << 20},
  };
}

std::vector<Setting> arrival_settings() {
  return {
      {.name = "arrivals",
       .kind = Kind::kChoice,
       .help = "When requests are sent: at random, evenly, in bursts, or when the trace says. Default: poisson, with a "
               "trace its own.",
       .choices = {"poisson", "uniform", "bursts", "trace"}},
      {.name = "rate",
       .placeholder = "R",
       .default_text = "1",
       .help = "Requests a second; with --find-knee the one to begin at.",
       .accepts = is_rate,
       .accepted = "a number above 0, at most 1000000"},
      {.name = "rates",
       .placeholder = "R,R,...",
       .help = "Several, one after another, and the knee among them.",
       .accepts = is_rates,
       .accepted = "numbers above 0, at most 1000000, separated by commas"},
      {.name = "find-knee",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Search for the highest rate at which requests are still good."},
      {.name = "knee-part",
       .kind = Kind::kNumber,
       .placeholder = "PART",
       .default_text = "0.95",
       .help = "A rate passes if at least this part of the requests offered is good.",
       .low = 0,
       .high = 1},
      {.name = "burst-size",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "8",
       .help = "Requests a burst; a burst comes every N / R seconds.",
       .low = 1,
       .high = 100'000},
      {.name = "concurrency",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .help =
           "A closed loop instead: N requests under way, the next one sent when one is answered. It can't show what "
           "queueing does to users, who come whether others wait or not.",
       .low = 1,
       .high = 10'000},
      {.name = "duration-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .help = "Of a run, after its warm-up. Default: 30, with the trace's arrivals to its end.",
       .low = 0,
       .high = 30 * kDay},
      {.name = "warmup-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "0",
       .help = "Requests due in the first S seconds of a run are sent and not counted.",
       .low = 0,
       .high = kDay},
      {.name = "max-requests",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1000000",
       .help = "Requests a run at most.",
       .low = 1,
       .high = 10'000'000},
      {.name = "repeats",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "Runs a rate, each with prompts and arrivals of its own.",
       .low = 1,
       .high = 1000},
      {.name = "seed",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "0",
       .help = "Of arrivals and prompts: the same seed asks the same at the same times.",
       .low = 0,
       .high = std::int64_t{1} << 53},
      {.name = "timeout-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "60",
       .help = "Seconds a request has, from when it was due.",
       .low = 0,
       .high = kDay},
  };
}

std::vector<Setting> judging_settings() {
  const auto limit = [](const char* name, const char* what) {
    return Setting{.name = name,
                   .kind = Kind::kNumber,
                   .placeholder = "MS",
                   .help = fmt::format("A request is good only if {} is at most that. Default: no limit.", what),
                   .low = 0,
                   .high = 1'000'000'000};
  };
  return {
      limit("slo-ttft-ms", "its time to the first token"),
      limit("slo-itl-ms", "the mean of its gaps between tokens"),
      limit("slo-e2e-ms", "its whole time"),
      {.name = "max-lateness-ms",
       .kind = Kind::kNumber,
       .placeholder = "MS",
       .default_text = "2",
       .help = "A run is invalid if at p99 requests were sent later than that.",
       .low = 0,
       .high = 1'000'000},
  };
}

std::vector<Setting> reported_settings() {
  return {
      {.name = "pid",
       .placeholder = "NAME=PID,...",
       .help = "Processes of this host whose CPU, memory, disk bytes and context switches belong in the report.",
       .accepts = is_processes,
       .accepted = "NAME=PID, several separated by commas, each name once"},
      {.name = "master-url",
       .placeholder = "URL",
       .help = "Of a mooncake_master's --metrics_port: its counters belong in the report."},
      {.name = "tp", .placeholder = "N", .help = "Tensor parallelism of the server, for the report."},
      {.name = "pp", .placeholder = "N", .help = "Pipeline parallelism, likewise."},
      {.name = "kv-dtype", .placeholder = "TEXT", .help = "Type of its KV cache, likewise."},
      {.name = "kv-layout", .placeholder = "TEXT", .help = "Layout of its KV cache, likewise."},
      {.name = "note", .placeholder = "TEXT", .help = "Anything else that whoever reads the report should know."},
      {.name = "requests", .placeholder = "FILE", .help = "Write each request, too, as a line of JSON."},
  };
}

Nanos nanos_of(double seconds) { return Nanos(static_cast<std::int64_t>(seconds * 1e9)); }

std::optional<double> limit_of(const Settings& settings, std::string_view name) {
  return settings.has(name) ? std::optional(settings.seconds(name)) : std::nullopt;
}

Result<void> read_target(const Settings& settings, lab::SloOptions& options) {
  auto endpoint = lab::ApiEndpoint::parse(settings.text("url"));
  if (!endpoint) return Failure(std::move(endpoint).error().with_context(settings.where("url")));
  options.endpoint = std::move(*endpoint);
  options.endpoint.authorities = settings.text_or("tls-ca", std::string(kSystemAuthorities));
  NMC_ASSIGN_OR_RETURN(const std::string key, secret_of(settings, "api-key", "api-key-file", "a key"));
  if (!key.empty()) options.headers.push_back({"Authorization", "Bearer " + key});
  if (settings.has("master-url")) {
    auto master = lab::ApiEndpoint::parse(settings.text("master-url"));
    if (!master) return Failure(std::move(master).error().with_context(settings.where("master-url")));
    options.master = std::move(*master);
    options.master->authorities = options.endpoint.authorities;
  }
  if (settings.has("pid")) options.processes = *parse_processes(settings.text("pid"));
  options.body = {.model = settings.text_or("served-model-name", ""),
                  .chat = settings.on("chat"),
                  .text = settings.on("text-prompts"),
                  .streamed = !settings.on("no-stream"),
                  .ignore_eos = !settings.on("stop-at-eos")};
  return {};
}

lab::Workload workload_of(std::string_view name) {
  for (const auto workload :
       {lab::Workload::kLongDocument, lab::Workload::kDistinct, lab::Workload::kNamespaces, lab::Workload::kTrace})
    if (name == lab::workload_name(workload)) return workload;
  return lab::Workload::kSharedPrefix;
}

Result<void> read_workload(const Settings& settings, lab::SloOptions& options) {
  lab::PromptOptions& prompts = options.prompts;
  prompts.workload = workload_of(settings.text("workload"));
  NMC_ASSIGN_OR_RETURN(prompts.prompt_tokens, lab::TokenLengths::parse(settings.text("prompt-tokens")));
  NMC_ASSIGN_OR_RETURN(prompts.output_tokens, lab::TokenLengths::parse(settings.text("output-tokens")));
  const bool documents = prompts.workload == lab::Workload::kLongDocument;
  prompts.shared_part = settings.has("shared-part") ? settings.seconds("shared-part") : documents ? 0.9 : 0.75;
  prompts.groups = settings.has("groups")                                        ? settings.count("groups")
                   : documents || prompts.workload == lab::Workload::kNamespaces ? 4
                                                                                 : 1;
  prompts.ids = *parse_token_range(settings.text("token-ids"));
  const bool wants_trace = prompts.workload == lab::Workload::kTrace;
  if (wants_trace != settings.has("trace")) {
    return wants_trace ? invalid_argument("--workload trace: expected --trace FILE with it")
                       : invalid_argument("--trace: expected --workload trace with it");
  }
  if (!wants_trace) return {};
  NMC_ASSIGN_OR_RETURN(lab::LoadTrace trace,
                       lab::read_load_trace(settings.text("trace"), settings.seconds("time-scale"),
                                            settings.count("trace-block-tokens")));
  prompts.trace = std::make_shared<const lab::LoadTrace>(std::move(trace));
  return {};
}

// Flags that say nothing together with the chosen arrivals are refused rather than ignored.
Result<void> read_arrivals(const Settings& settings, lab::SloOptions& options) {
  const bool has_trace = options.prompts.trace != nullptr;
  const std::string arrivals = settings.text_or("arrivals", has_trace ? "trace" : "poisson");
  const auto is_given = [&](std::string_view name) {
    for (const EffectiveValue& value : settings.all())
      if (value.setting.name == name) return value.origin != Origin::kDefault;
    return false;
  };
  const auto refuse = [&](std::string_view flag, std::string_view with) -> Result<void> {
    return invalid_argument("--{}: has no meaning with {}", flag, with);
  };
  if (settings.has("concurrency")) {
    for (const std::string_view flag : {"arrivals", "rate", "rates", "find-knee", "burst-size"})
      if (is_given(flag)) return refuse(flag, "--concurrency");
    options.arrivals = lab::Arrivals::kClosed;
    options.concurrency = settings.count("concurrency");
  } else if (arrivals == "trace") {
    if (!has_trace) return invalid_argument("--arrivals trace: expected --workload trace and --trace FILE with it");
    for (const std::string_view flag : {"rate", "rates", "find-knee", "burst-size"})
      if (is_given(flag)) return refuse(flag, "the trace's arrivals; choose others by --arrivals");
    options.arrivals = lab::Arrivals::kTrace;
  } else {
    options.arrivals = arrivals == "uniform"  ? lab::Arrivals::kUniform
                       : arrivals == "bursts" ? lab::Arrivals::kBursts
                                              : lab::Arrivals::kPoisson;
    if (arrivals != "bursts" && is_given("burst-size")) return refuse("burst-size", "--arrivals " + arrivals);
    options.find_knee = settings.on("find-knee");
    if (settings.has("rates") && is_given("rate")) return refuse("rate", "--rates");
    if (settings.has("rates") && options.find_knee) return refuse("rates", "--find-knee, which chooses its own");
    options.rates = *parse_rates(settings.has("rates") ? settings.text("rates") : settings.text("rate"));
    std::sort(options.rates.begin(), options.rates.end());
    options.rates.erase(std::unique(options.rates.begin(), options.rates.end()), options.rates.end());
  }
  options.burst_size = settings.count("burst-size");
  if (settings.has("duration-s"))
    options.duration = nanos_of(settings.seconds("duration-s"));
  else if (options.arrivals != lab::Arrivals::kTrace)
    options.duration = nanos_of(kDurationDefault);
  if (options.duration && *options.duration <= Nanos(0)) return invalid_argument("--duration-s: expected more than 0");
  if (settings.seconds("timeout-s") <= 0) return invalid_argument("--timeout-s: expected more than 0");
  return {};
}

}  // namespace

std::vector<Setting> slo_settings() {
  std::vector<Setting> settings;
  for (auto part : {target_settings, workload_settings, arrival_settings, judging_settings, reported_settings})
    for (Setting& setting : part()) settings.push_back(std::move(setting));
  for (Setting& setting : settings) {
    // These a server has too: one environment serves both.
    const bool shared =
        setting.name == "served-model-name" || setting.name == "tls-ca" || setting.name == "api-key-file";
    if (!shared) setting.source = Source::kFlagOnly;
  }
  return settings;
}

Result<lab::SloOptions> slo_options_of(const Settings& settings) {
  lab::SloOptions options;
  NMC_RETURN_IF_ERROR(read_target(settings, options));
  NMC_RETURN_IF_ERROR(read_workload(settings, options));
  NMC_RETURN_IF_ERROR(read_arrivals(settings, options));
  options.warmup = nanos_of(settings.seconds("warmup-s"));
  options.requests_max = settings.count("max-requests");
  options.timeout = nanos_of(settings.seconds("timeout-s"));
  options.repeats = settings.count("repeats");
  options.seed = static_cast<std::uint64_t>(settings.integer("seed"));
  options.max_lateness_ms = settings.seconds("max-lateness-ms");
  options.limits = {.ttft_ms = limit_of(settings, "slo-ttft-ms"),
                    .itl_ms = limit_of(settings, "slo-itl-ms"),
                    .e2e_ms = limit_of(settings, "slo-e2e-ms")};
  if (!options.body.streamed && (options.limits.ttft_ms || options.limits.itl_ms))
    return invalid_argument("--no-stream: has no meaning with --slo-ttft-ms and --slo-itl-ms");
  options.knee_part = settings.seconds("knee-part");
  options.keep_records = settings.has("requests");
  return options;
}

lab::SloLabels slo_labels_of(const Settings& settings, const lab::SloOptions& options) {
  return {.url = options.endpoint.to_string(),
          .server_version = "",
          .tensor_parallel = settings.text_or("tp", ""),
          .pipeline_parallel = settings.text_or("pp", ""),
          .kv_dtype = settings.text_or("kv-dtype", ""),
          .kv_layout = settings.text_or("kv-layout", ""),
          .note = settings.text_or("note", "")};
}

}  // namespace nmc::cli
