// The experiments: plans the cases, runs each as a process, and makes one report of them. For the command by that name
// and for those that need its runs.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "cli/setting.h"
#include "cli/settings.h"
#include "cli/signals.h"
#include "evidence/report.h"
#include "lab/experiment_plan.h"

namespace nmc::cli {

struct SuiteOptions {
  lab::PlanOptions plan;
  std::uint64_t seed = 1;
  std::optional<std::size_t> max_new_tokens;  // cuts answers to that length
  std::string model = "tiny", dtype = "bf16";
  std::uint64_t threads = 0;
  std::uint64_t dram_bytes = std::uint64_t{64} << 20;
  std::string workloads;  // a file; "": the built-in ones
  Nanos case_timeout = std::chrono::minutes(2);
  // Which case is next, of how many.
  std::function<void(std::size_t done, std::size_t cases, const lab::PlannedCase& next)> on_case;
};

// The flags that set those, for any command that runs the suite.
std::vector<Setting> suite_settings();
Result<SuiteOptions> suite_options_of(const Settings& settings);
// Tells of each case on standard error: on one line of a terminal, or not at all with --quiet or without one.
void show_progress(SuiteOptions& options, const Settings& settings);

struct SuiteResult {
  evidence::ExperimentReport report;
  bool interrupted = false;  // the report has the cases that were complete
};
// A case that can't be run is a failed or skipped row with its reason. Fails where the plan can't be made, or no case
// of any kind can be started.
Result<SuiteResult> run_suite(const SuiteOptions& options, const StopSignal& stop);

// Writes the report, atomically, and appends its record to the registry.
Result<evidence::ExperimentReport> file_report(const evidence::ExperimentReport& report, const Path& output,
                                               const Path& index);

// For people: a line a case, its repeats together, and where the report is.
std::string experiments_text(const evidence::ExperimentReport& report, const Path& output);

}  // namespace nmc::cli
