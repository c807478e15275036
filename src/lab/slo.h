// Measures a server under loads of several rates, each repeated: what `nano-mooncake slo` does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lab/api_endpoint.h"
#include "lab/knee.h"
#include "lab/load_body.h"
#include "lab/load_plan.h"
#include "lab/load_prompts.h"
#include "lab/open_loop.h"
#include "lab/slo_summary.h"

namespace nmc::lab {

struct WatchedProcess {
  std::string name;
  std::int64_t pid = 0;
};

struct SloOptions {
  ApiEndpoint endpoint;
  std::vector<net::HttpHeader> headers;
  std::optional<ApiEndpoint> master;  // of the store, its metrics port
  std::vector<WatchedProcess> processes;
  BodyOptions body;
  PromptOptions prompts;  // their seed is the run's

  Arrivals arrivals = Arrivals::kPoisson;
  std::vector<double> rates;  // kPoisson, kUniform, kBursts; a second
  std::size_t burst_size = 8;
  std::size_t concurrency = 0;  // kClosed
  // Of a trace, where it is none: to its end.
  std::optional<Nanos> duration;
  Nanos warmup{0};
  std::size_t requests_max = 1'000'000;
  Nanos timeout = std::chrono::seconds(60);
  std::size_t repeats = 1;
  std::uint64_t seed = 0;  // of the first run; every other one has another of its own

  double max_lateness_ms = 2;
  SloLimits limits;
  bool find_knee = false;  // from the one rate on
  double knee_part = 0.95;
  std::size_t knee_rates_max = 12;

  bool keep_records = false;
  std::function<bool()> should_stop;
  std::function<void(std::string_view what)> on_run;
  std::function<void(std::size_t sent, std::size_t ended)> on_progress;
};

struct SloRun {
  std::optional<double> rate;  // that was asked for
  std::size_t repeat = 0;
  std::uint64_t seed = 0;
  Nanos duration{0};
  RunSummary summary;
  Json server, master, processes, network;  // during it
  std::vector<LoadRecord> records;          // with keep_records
  bool is_valid() const { return summary.invalid.empty() && !summary.interrupted; }
};

struct SloResult {
  std::vector<SloRun> runs;
  std::optional<KneeSearch> knee;  // of more than one rate, from valid runs
  bool interrupted = false;
  bool all_valid() const;
};

// Errors: the server can't be reached when a run begins; a watched process isn't there.
Result<SloResult> measure_slo(const SloOptions& options);

}  // namespace nmc::lab
