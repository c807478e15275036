// `nano-mooncake simulate`: what a cache of KV blocks would do for a trace or a made workload.
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/files.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/serving_settings.h"
#include "cli/simulate_report.h"
#include "cli/simulate_settings.h"
#include "sim/block_cache.h"
#include "sim/calibration.h"
#include "sim/instant.h"
#include "sim/timed.h"
#include "sim/trace_reader.h"
#include "sim/workload.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr std::size_t kRowsMax = 10'000;

// The parts of "a,b,c"; calls `each` with each until that fails.
template <class Each>
Result<void> for_each_part(std::string_view list, Each each) {
  for (;;) {
    const std::size_t comma = list.find(',');
    NMC_RETURN_IF_ERROR(each(list.substr(0, comma)));
    if (comma == std::string_view::npos) return {};
    list.remove_prefix(comma + 1);
  }
}

Result<std::vector<std::string>> policies_of(const Settings& settings) {
  const auto known = sim::policy_names();
  if (settings.on("compare")) return std::vector<std::string>(known.begin(), known.end());
  std::vector<std::string> policies;
  const auto each = [&](std::string_view name) -> Result<void> {
    for (const char* one : known) {
      if (name != one) continue;
      policies.emplace_back(name);
      return {};
    }
    return invalid_argument("{}: \"{}\": expected one or more of {}, separated by commas", settings.where("policy"),
                            name, fmt::join(known, ", "));
  };
  NMC_RETURN_IF_ERROR(for_each_part(settings.text("policy"), each));
  return policies;
}

Result<std::vector<std::uint64_t>> capacities_of(const Settings& settings, double block_bytes) {
  if (settings.has("cache-capacity") && settings.has("capacity-blocks")) {
    return invalid_argument("{} and {}: expected one of them", settings.where("cache-capacity"),
                            settings.where("capacity-blocks"));
  }
  if (settings.has("cache-capacity")) {
    const double blocks = std::floor(static_cast<double>(settings.bytes("cache-capacity")) / block_bytes);
    return std::vector<std::uint64_t>{static_cast<std::uint64_t>(blocks)};
  }
  std::vector<std::uint64_t> capacities;
  const auto each = [&](std::string_view text) -> Result<void> {
    std::uint64_t number = sim::kUnbounded;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text != "inf" && (end.ec != std::errc() || end.ptr != text.data() + text.size() || number >= UINT32_MAX)) {
      return invalid_argument("{}: \"{}\": expected whole numbers from 0 to {} or inf, separated by commas",
                              settings.where("capacity-blocks"), text, UINT32_MAX - 1);
    }
    capacities.push_back(number);
    return {};
  };
  NMC_RETURN_IF_ERROR(for_each_part(settings.text_or("capacity-blocks", "inf"), each));
  return capacities;
}

bool given(const Settings& settings, std::string_view name) {
  for (const EffectiveValue& value : settings.all()) {
    if (value.setting.name == name) return value.origin != Origin::kDefault;
  }
  return false;
}

// A flag that changes nothing is a mistake of whoever gave it.
Result<void> refuse_idle_flags(const Settings& settings) {
  if (settings.has("trace") && settings.has("workload")) {
    return invalid_argument("--trace and --workload: expected one of them");
  }
  for (const std::string_view name : workload_flags()) {
    if (!settings.has("trace") || !given(settings, name)) continue;
    return invalid_argument("--{}: it shapes a --workload, and there is a --trace", name);
  }
  if (settings.has("workload") && given(settings, "sort")) return invalid_argument("--sort: there is no --trace");
  for (const std::string_view name : timed_flags()) {
    if (settings.text("rules") != "instant" || !given(settings, name)) continue;
    return invalid_argument("--{}: there is no time under --rules instant", name);
  }
  if (settings.text("rules") == "instant" && settings.has("calibrate")) {
    return invalid_argument("--calibrate: there is no time under --rules instant");
  }
  return {};
}

Result<double> above_zero(const Settings& settings, std::string_view name) {
  const double value = settings.seconds(name);
  if (value > 0) return value;
  return invalid_argument("{}: {:g}: expected a number above 0", settings.where(name), value);
}

Result<Json> read_json(const std::string& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, std::uint64_t{64} << 20));
  return parse_json(text, path);
}

Result<sim::PrefillCost> prefill_cost_from_json(const Json& json) {
  const JsonFields fields(json);
  sim::PrefillCost cost;
  NMC_ASSIGN_OR_RETURN(cost.fixed_s, fields.number("fixed_s", 0, 1e6));
  NMC_ASSIGN_OR_RETURN(cost.token_s, fields.number("token_s", 0, 1e6));
  NMC_ASSIGN_OR_RETURN(cost.token_squared_s, fields.number("token_squared_s", 0, 1e6));
  return cost;
}

Result<sim::PrefillCost> prefill_cost_of(const std::string& text) {
  if (!text.ends_with(".json")) return sim::parse_prefill_cost(text);
  NMC_ASSIGN_OR_RETURN(const Json json, read_json(text));
  Result<sim::PrefillCost> cost = prefill_cost_from_json(json);
  if (!cost) return Failure(std::move(cost).error().with_context(text));
  return cost;
}

Result<void> apply_calibration(const Settings& settings, Simulation& simulation) {
  if (!settings.has("calibrate")) return {};
  sim::Calibration found;
  const auto each = [&](std::string_view path) -> Result<void> {
    NMC_ASSIGN_OR_RETURN(const Json report, read_json(std::string(path)));
    simulation.calibrated_from.emplace_back(path);
    return sim::calibrate(report, path, found);
  };
  NMC_RETURN_IF_ERROR(for_each_part(settings.text("calibrate"), each));
  sim::TimedOptions& options = simulation.options;
  if (found.prefill && !given(settings, "prefill-cost-model")) options.cost.prefill = *found.prefill;
  if (found.decode_token_s && !given(settings, "decode-token-s")) options.decode_token_s = *found.decode_token_s;
  if (found.decode_slots && !given(settings, "decode-slots")) options.decode_slots = *found.decode_slots;
  if (found.network_bytes_per_s && !given(settings, "network-bandwidth")) {
    options.network_bytes_per_s = *found.network_bytes_per_s;
  }
  if (found.lookup_s && !given(settings, "fixed-lookup-cost")) options.lookup_s = *found.lookup_s;
  return {};
}

Result<void> read_system(const Settings& settings, Simulation& simulation) {
  sim::TimedOptions& options = simulation.options;
  NMC_ASSIGN_OR_RETURN(options.cost.bytes_per_token, above_zero(settings, "kv-bytes-per-token"));
  Result<sim::PrefillCost> prefill = prefill_cost_of(settings.text("prefill-cost-model"));
  if (!prefill) return Failure(std::move(prefill).error().with_context(settings.where("prefill-cost-model")));
  options.cost.prefill = *prefill;
  const double block_bytes = static_cast<double>(settings.integer("chunk-size")) * options.cost.bytes_per_token;
  options.disk_blocks =
      static_cast<std::uint64_t>(std::floor(static_cast<double>(settings.bytes("disk-capacity")) / block_bytes));
  NMC_ASSIGN_OR_RETURN(options.time_scale, above_zero(settings, "time-scale"));
  options.lookup_s = settings.seconds("fixed-lookup-cost");
  options.network_bytes_per_s = static_cast<double>(settings.bytes("network-bandwidth"));
  options.disk_bytes_per_s = static_cast<double>(settings.bytes("disk-bandwidth"));
  options.decode_token_s = settings.seconds("decode-token-s");
  options.prefill_workers = static_cast<std::uint32_t>(settings.integer("prefill-workers"));
  options.decode_slots = static_cast<std::uint32_t>(settings.integer("decode-slots"));
  simulation.queue_policy = settings.text("queue-policy");
  options.queue_policy = *sim::queue_policy_of(simulation.queue_policy);
  if (settings.has("prefetch-deadline")) options.prefetch_deadline_s = settings.seconds("prefetch-deadline");
  options.slo_ttft_s = settings.seconds("slo-ttft-ms") / 1000;
  return apply_calibration(settings, simulation);
}

Result<sim::Trace> trace_of(const Settings& settings, Simulation& simulation) {
  const auto block_tokens = static_cast<std::uint32_t>(settings.integer("chunk-size"));
  if (settings.has("trace")) {
    return sim::read_trace(settings.text("trace"), {.block_tokens = block_tokens, .sort = settings.on("sort")});
  }
  const auto number = [&](std::string_view name) { return static_cast<std::uint32_t>(settings.integer(name)); };
  const std::string workload = settings.text_or("workload", "zipf");
  sim::WorkloadOptions options;
  options.seed = static_cast<std::uint64_t>(settings.integer("seed"));
  options.requests = number("requests");
  NMC_ASSIGN_OR_RETURN(options.rate_per_s, above_zero(settings, "rate"));
  options.block_tokens = block_tokens;
  options.documents = number("documents");
  options.prefix_tokens = number("prefix-tokens");
  options.suffix_tokens = number("suffix-tokens");
  options.output_tokens = number("output-tokens");
  options.zipf_exponent = settings.seconds("zipf-exponent");
  options.turns = number("turns");
  simulation.workload_options = {{"workload", workload},
                                 {"seed", options.seed},
                                 {"requests", options.requests},
                                 {"rate", options.rate_per_s},
                                 {"documents", options.documents},
                                 {"prefix_tokens", options.prefix_tokens},
                                 {"suffix_tokens", options.suffix_tokens},
                                 {"output_tokens", options.output_tokens},
                                 {"zipf_exponent", options.zipf_exponent},
                                 {"turns", options.turns}};
  return sim::make_workload(workload, options);
}

Result<SimulationRow> simulate_one(const sim::Trace& trace, const Simulation& simulation, const std::string& policy,
                                   std::uint64_t capacity_blocks) {
  if (simulation.instant) {
    NMC_ASSIGN_OR_RETURN(const sim::HitCounts hits,
                         sim::replay_instant(trace, policy, capacity_blocks, simulation.options.cost));
    return SimulationRow{policy, capacity_blocks, hits, std::nullopt};
  }
  sim::TimedOptions options = simulation.options;
  options.memory_blocks = capacity_blocks;
  NMC_ASSIGN_OR_RETURN(sim::TimedResult timed, sim::simulate_timed(trace, policy, options));
  const sim::HitCounts hits = timed.hits;
  return SimulationRow{policy, capacity_blocks, hits, std::move(timed)};
}

Result<int> run(const Settings& settings) {
  NMC_RETURN_IF_ERROR(refuse_idle_flags(settings));
  Simulation simulation;
  simulation.instant = settings.text("rules") == "instant";
  NMC_RETURN_IF_ERROR(read_system(settings, simulation));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::string> policies, policies_of(settings));
  const double block_bytes =
      static_cast<double>(settings.integer("chunk-size")) * simulation.options.cost.bytes_per_token;
  NMC_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> capacities, capacities_of(settings, block_bytes));
  if (policies.size() * capacities.size() > kRowsMax) {
    return invalid_argument("{} policies with {} capacities: expected at most {} rows", policies.size(),
                            capacities.size(), kRowsMax);
  }
  NMC_ASSIGN_OR_RETURN(const sim::Trace trace, trace_of(settings, simulation));
  const bool tells = !settings.on("quiet") && isatty(STDERR_FILENO) == 1;
  for (const std::uint64_t capacity : capacities) {
    for (const std::string& policy : policies) {
      if (tells) fmt::print(stderr, "nano-mooncake simulate: {}, {} blocks\n", policy, capacity_text(capacity));
      NMC_ASSIGN_OR_RETURN(SimulationRow row, simulate_one(trace, simulation, policy, capacity));
      simulation.rows.push_back(std::move(row));
    }
  }
  const Report report = report_of(trace, simulation);
  if (settings.has("chart")) {
    const std::string& path = settings.text("chart");
    NMC_ASSIGN_OR_RETURN(const std::string drawn, simulation_chart(report, path.ends_with(".html")));
    NMC_RETURN_IF_ERROR(write_file_atomic(path, drawn));
  }
  NMC_RETURN_IF_ERROR(write_report(report, settings));
  return kExitDone;
}

}  // namespace

Command simulate_command() {
  Command command{
      .name = "simulate",
      .summary = "cache policies on a trace or a workload: hit rates, times, queues, without a model",
      .purpose =
          "Runs requests against a cache of KV blocks and, under timed rules, against prefill workers, decode slots, a "
          "network and a disk that they share. The eviction policies are the store's own classes, and opt is the bound "
          "that knows the future. A hit is a cached block with only cached ones before it; the report says what was "
          "counted and assumed.\n\n"
          "It is a simulation: it shows which policy is better under its assumptions, and no latency or bandwidth of a "
          "real system. Equal flags give equal bytes.",
      .settings = simulate_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake simulate --workload zipf --compare --cache-capacity 16GiB --chart simulation.html",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
