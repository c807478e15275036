// `nano-mooncake store-bench`: a node's store by operation, size, threads and carrier.
#include "lab/store_bench.h"

#include <fmt/core.h>

#include <cstdio>
#include <optional>

#include "base/log.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/own_master.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr double kSecondsDefault = 60, kSecondsQuick = 6;

Result<std::vector<std::size_t>> sizes_of(const Settings& settings) {
  const Setting one{.name = "sizes", .kind = Kind::kBytes, .low = 1, .high = std::int64_t{1} << 30};
  std::vector<std::size_t> sizes;
  std::string_view rest = settings.text("sizes");
  for (;;) {
    const std::size_t comma = rest.find(',');
    NMC_ASSIGN_OR_RETURN(const Value value, parse_value(one, rest.substr(0, comma), settings.where("sizes")));
    sizes.push_back(static_cast<std::size_t>(std::get<std::int64_t>(value)));
    if (comma == std::string_view::npos) return sizes;
    rest.remove_prefix(comma + 1);
  }
}

Result<lab::StoreBenchOptions> bench_options_of(const Settings& settings) {
  lab::StoreBenchOptions options;
  const bool quick = settings.on("quick");
  if (settings.has("sizes")) {
    NMC_ASSIGN_OR_RETURN(options.sizes, sizes_of(settings));
  } else if (quick) {
    options.sizes = {4 << 10, 64 << 10, 1 << 20};
  }
  if (settings.has("concurrency")) {
    const std::vector<std::int64_t>& threads = settings.integers("concurrency");
    options.threads.assign(threads.begin(), threads.end());
  } else if (quick) {
    options.threads = {1, 2};
  }
  const std::string& carrier = settings.text("carrier");
  if (carrier == "shm") options.carriers = {lab::StoreCarrier::kShm};
  if (carrier == "tcp") options.carriers = {lab::StoreCarrier::kTcp};
  options.rounds = settings.count("rounds");
  options.batch = settings.count("batch");
  options.load = settings.seconds("load");
  const double seconds = settings.has("seconds") ? settings.seconds("seconds")
                         : quick                 ? kSecondsQuick
                                                 : kSecondsDefault;
  options.time = Nanos(static_cast<std::int64_t>(seconds * 1e9));
  if (!settings.on("quiet")) {
    options.on_progress = [](std::string_view what) { fmt::print(stderr, "nano-mooncake store-bench: {}\n", what); };
  }
  return options;
}

Json json_of(const lab::StoreBenchRow& row) {
  return {{"op", lab::store_op_name(row.op)},
          {"carrier", lab::store_carrier_name(row.carrier)},
          {"bytes", row.bytes},
          {"threads", row.threads},
          {"batch", row.batch},
          {"samples", row.samples},
          {"p50_us", row.p50_us},
          {"p95_us", row.p95_us},
          {"p99_us", row.p99_us},
          {"calls_per_s", row.calls_per_s},
          {"payload_gb_s", row.payload_gb_s},
          {"logical_bytes", row.logical_bytes},
          {"physical_bytes", row.physical_bytes},
          {"core_wait", row.core_wait},
          {"service_p50_us", row.service_p50_us},
          {"service_p99_us", row.service_p99_us},
          {"wait_p50_us", row.wait_p50_us},
          {"wait_p99_us", row.wait_p99_us},
          {"regime", lab::regime_name(row.regime)}};
}

Json json_of(const lab::StoreBenchOptions& options, const lab::StoreBenchResult& result) {
  Json workload = {{"kind", "store-bench"},     {"sizes", options.sizes},   {"threads", options.threads},
                   {"carriers", Json::array()}, {"rounds", options.rounds}, {"batch", options.batch},
                   {"load", options.load}};
  for (const lab::StoreCarrier carrier : options.carriers)
    workload["carriers"].push_back(lab::store_carrier_name(carrier));
  Json json = {{"schema", "nano-mooncake/store-bench/v1"},
               {"provenance",
                lab::provenance_json({.evidence_tier = evidence::kTierMechanism, .workload = std::move(workload)})},
               {"cores", result.cores},
               {"rounds", options.rounds},
               {"load", options.load},
               {"segment_bytes", result.segment_bytes},
               {"rows", Json::array()}};
  for (const auto& row : result.rows) json["rows"].push_back(json_of(row));
  return json;
}

// Three figures that count: microseconds go from a tenth to a million.
Cell short_number(double value) { return Cell(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

Table table_of(const lab::StoreBenchResult& result) {
  Table table;
  table.columns = {"op",     "carrier",   "bytes",          "batch",       "threads", "samples",
                   "p50_us", "p99_us",    "GB_per_s",       "calls_per_s", "logical", "physical",
                   "regime", "core_wait", "service_p99_us", "wait_p99_us"};
  for (const auto& row : result.rows) {
    table.rows.push_back({lab::store_op_name(row.op), lab::store_carrier_name(row.carrier), format_bytes(row.bytes),
                          Cell(row.batch), Cell(row.threads), Cell(row.samples), short_number(row.p50_us),
                          short_number(row.p99_us), Cell(row.payload_gb_s, 2), Cell(row.calls_per_s, 0),
                          format_bytes(row.logical_bytes), format_bytes(row.physical_bytes),
                          lab::regime_name(row.regime), Cell(row.core_wait, 2), short_number(row.service_p99_us),
                          short_number(row.wait_p99_us)});
  }
  return table;
}

// Ctrl-C ends the run in order: objects, segment and master go, then the process.
Result<lab::StoreBenchResult> run_bench(lab::StoreBenchOptions& options, const Settings& settings,
                                        const StopSignal& stop) {
  options.should_stop = [&stop] { return stop.has_come(); };
  std::optional<OwnMaster> own;
  if (settings.has("store")) {
    options.server = settings.text("store");
    options.token = settings.text_or("token", "");
  } else {
    NMC_ASSIGN_OR_RETURN(OwnMaster master, OwnMaster::start());
    options.server = own.emplace(std::move(master)).address();
  }
  return lab::store_bench(options);
}

Result<int> run(const Settings& settings) {
  if (std::string_view(build_info().build_type) != "Release") {
    log_warning("this is a {} build: its figures say nothing about a Release build", build_info().build_type);
  }
  NMC_ASSIGN_OR_RETURN(lab::StoreBenchOptions options, bench_options_of(settings));
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  const Result<lab::StoreBenchResult> result = run_bench(options, settings, stop);
  if (stop.has_come()) return kExitInterrupted;
  if (!result) return Failure(result.error());
  Report report;
  report.json = json_of(options, *result);
  report.table = table_of(*result);
  report.text = fmt::format(
      "{} cores; {} rounds; a segment of {}. service and wait: of calls that arrive at {:.0f} % of the closed loop's "
      "rate.\n\n{}",
      result->cores, options.rounds, format_bytes(result->segment_bytes), options.load * 100,
      format_table(report.table));
  NMC_RETURN_IF_ERROR(write_report(report, settings));
  return kExitDone;
}

std::vector<Setting> bench_settings() {
  return {
      {.name = "store",
       .placeholder = "ADDRESS",
       .help = "A running master of this host, unix:PATH or HOST:PORT. Without it the run has a master of its own."},
      {.name = "token", .placeholder = "TEXT", .help = "Of that master, where it wants one.", .secret = true},
      {.name = "sizes",
       .placeholder = "BYTES,...",
       .help = "Of objects, each up to 1GiB. Default: 4KiB,64KiB,1MiB,16MiB,64MiB, the first three with --quick.",
       .source = Source::kFlagOnly},
      {.name = "concurrency",
       .kind = Kind::kIntegers,
       .placeholder = "N,N,...",
       .help = "Threads that call at once. Default: 1,2,4, or 1,2 with --quick.",
       .low = 1,
       .high = 256,
       .source = Source::kFlagOnly},
      {.name = "carrier",
       .kind = Kind::kChoice,
       .default_text = "both",
       .help = "How the client reaches the store.",
       .choices = {"shm", "tcp", "both"},
       .source = Source::kFlagOnly},
      {.name = "batch",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "32",
       .help = "Objects a batch call, fewer where they are more than 32 MiB.",
       .low = 2,
       .high = 1024,
       .source = Source::kFlagOnly},
      {.name = "load",
       .kind = Kind::kNumber,
       .placeholder = "PART",
       .default_text = "0.7",
       .help = "Rate of arrivals for service and wait, as a part of the closed loop's.",
       .low = 0,
       .high = 100,
       .source = Source::kFlagOnly},
      {.name = "rounds",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "3",
       .help = "All cases take turns in each; figures are the rounds' medians.",
       .low = 1,
       .high = 1000,
       .source = Source::kFlagOnly},
      {.name = "seconds",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .help = "For all measurements together; large objects on many threads may take more. Default: 60, or 6 with "
               "--quick.",
       .low = 0,
       .high = 86'400,
       .source = Source::kFlagOnly},
      {.name = "quick",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "A small matrix in seconds.",
       .source = Source::kFlagOnly},
  };
}

}  // namespace

Command store_bench_command() {
  Command command{
      .name = "store-bench",
      .summary = "latency and bandwidth of a node's store beside memcpy and a raw socket",
      .purpose =
          "Measures the store of this host by operation, object size, number of threads and carrier: shm is shared "
          "memory, tcp the same client forced over loopback. memcpy and a raw socket of the same sizes are measured in "
          "the same run, and all cases take turns in each round.\n\n"
          "p50, p95 and p99 are of a closed loop, where a thread asks again as soon as it was answered. Logical bytes "
          "are "
          "the payload asked for; physical bytes what was copied in memory or crossed a socket for it: none for a view "
          "in place. Then calls arrive at random at --load of that rate: service is how long a call took once it had "
          "begun, wait how long it stood in line; core_wait is the part of the closed loop in which threads could run "
          "and had no core. So a p99 that gets worse with threads shows where: in the service, in the line, or for "
          "want "
          "of cores.\n\n"
          "The regime comes from the line time = fixed + bytes / bandwidth through the sizes of one operation, carrier "
          "and number of threads: fixed-cost where less than a quarter of the time goes into the bytes, saturated "
          "where "
          "more than three quarters do, else between (also with one size only).",
      .settings = bench_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example =
          "nano-mooncake store-bench --sizes 4KiB,1MiB,64MiB --concurrency 1,4 --format json --output store.json",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) {
    if (setting.name != "store") command.settings.push_back(std::move(setting));  // ours says what it means here
  }
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
