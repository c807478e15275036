// `nano-mooncake simulate`: what a cache of KV blocks would do for a trace.
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/serving_settings.h"
#include "cli/simulate_report.h"
#include "sim/instant.h"
#include "sim/trace_reader.h"

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

Result<sim::CostModel> cost_of(const Settings& settings) {
  sim::CostModel cost;
  cost.bytes_per_token = settings.seconds("kv-bytes-per-token");
  if (!(cost.bytes_per_token > 0)) {
    return invalid_argument("{}: expected a number above 0", settings.where("kv-bytes-per-token"));
  }
  Result<sim::PrefillCost> prefill = sim::parse_prefill_cost(settings.text("prefill-cost-model"));
  if (!prefill) return Failure(std::move(prefill).error().with_context(settings.where("prefill-cost-model")));
  cost.prefill = *prefill;
  return cost;
}

Result<int> run(const Settings& settings) {
  Simulation simulation;
  simulation.rules = settings.text("rules");
  NMC_ASSIGN_OR_RETURN(simulation.cost, cost_of(settings));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::string> policies, policies_of(settings));
  const auto block_tokens = static_cast<std::uint32_t>(settings.integer("chunk-size"));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> capacities,
                       capacities_of(settings, block_tokens * simulation.cost.bytes_per_token));
  if (policies.size() * capacities.size() > kRowsMax) {
    return invalid_argument("{} policies with {} capacities: expected at most {} rows", policies.size(),
                            capacities.size(), kRowsMax);
  }
  if (!settings.has("trace")) return invalid_argument("--trace: nothing given, expected a file");
  NMC_ASSIGN_OR_RETURN(const sim::Trace trace, sim::read_trace(settings.text("trace"), {.block_tokens = block_tokens,
                                                                                        .sort = settings.on("sort")}));
  const bool tells = !settings.on("quiet") && isatty(STDERR_FILENO) == 1;
  for (const std::uint64_t capacity : capacities) {
    for (const std::string& policy : policies) {
      if (tells) fmt::print(stderr, "nano-mooncake simulate: {}, {} blocks\n", policy, capacity_text(capacity));
      NMC_ASSIGN_OR_RETURN(const sim::HitCounts hits, sim::replay_instant(trace, policy, capacity, simulation.cost));
      simulation.rows.push_back({policy, capacity, hits});
    }
  }
  NMC_RETURN_IF_ERROR(write_report(report_of(trace, simulation), settings));
  return kExitDone;
}

std::vector<Setting> simulate_settings() {
  return {
      {.name = "trace",
       .placeholder = "FILE",
       .help =
           "Requests, plain or compressed with zstd: JSONL with timestamp, input_length, output_length and hash_ids, "
           "or CSV or JSONL with arrival_time, namespace, prefix_id, prefix_tokens and suffix_tokens.",
       .source = Source::kFlagOnly},
      {.name = "sort",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help =
           "Put requests in the order of their arrival, what arrives at once as in the file. Without it a file that "
           "isn't in order is refused.",
       .source = Source::kFlagOnly},
      {.name = "rules",
       .kind = Kind::kChoice,
       .default_text = "instant",
       .help = "instant: no time; requests in order, what one leaves the next finds.",
       .choices = {"instant"},
       .source = Source::kFlagOnly},
      {.name = "policy",
       .placeholder = "NAME,...",
       .default_text = "lru",
       .help =
           "What is evicted first: lru, fifo, lfu, lfu-len, length-aware, s3-fifo, freq-admission, cost-per-byte, or "
           "opt, which knows the future.",
       .source = Source::kFlagOnly},
      {.name = "compare",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "All policies on the same arrivals.",
       .source = Source::kFlagOnly},
      {.name = "capacity-blocks",
       .placeholder = "N,...",
       .help = "Blocks that the cache holds, or inf. Default: inf, or --cache-capacity.",
       .source = Source::kFlagOnly},
      {.name = "cache-capacity",
       .kind = Kind::kBytes,
       .placeholder = "BYTES",
       .help = "The same in bytes; whole blocks of it are used.",
       .source = Source::kFlagOnly},
      {.name = "chunk-size",
       .kind = Kind::kInteger,
       .placeholder = "TOKENS",
       .default_text = "512",
       .help = "Tokens of a block. Of a trace with hash_ids, what they were made with.",
       .low = 1,
       .high = 1 << 20,
       .source = Source::kFlagOnly},
      {.name = "kv-bytes-per-token",
       .kind = Kind::kNumber,
       .placeholder = "BYTES",
       .default_text = "131072",
       .help = "KV of a token. The default is 32 layers with 8 heads of 128 and 2 bytes each.",
       .low = 0,
       .high = 1 << 30,
       .source = Source::kFlagOnly},
      {.name = "prefill-cost-model",
       .placeholder = "FORMULA",
       .default_text = "0.01+1e-4*n+1e-9*n^2",
       .help = "Seconds to compute a prompt of n tokens.",
       .source = Source::kFlagOnly},
  };
}

}  // namespace

Command simulate_command() {
  Command command{
      .name = "simulate",
      .summary = "hit rates of cache policies on a trace, without a model",
      .purpose =
          "Replays a trace of requests against a cache of KV blocks and counts. The eviction policies are the store's "
          "own "
          "classes, and opt is the bound that knows the future. A hit is a cached block with only cached ones before "
          "it; the report says what was counted and assumed. It is a simulation: it shows which policy is better under "
          "its assumptions, and no latency or bandwidth of a real system.",
      .settings = simulate_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example =
          "nano-mooncake simulate --trace conversation_trace.jsonl.zst --compare --capacity-blocks 1000,10000,inf",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
