// `nano-mooncake experiments`: the suite over the real runtimes, a report, a record in the registry.
#include <fmt/core.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/experiment_suite.h"
#include "cli/output.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(SuiteOptions options, suite_options_of(settings));
  show_progress(options, settings);
  NMC_ASSIGN_OR_RETURN(const SuiteResult result, run_suite(options, stop));
  const Path output = settings.text("output");
  NMC_ASSIGN_OR_RETURN(const evidence::ExperimentReport report,
                       file_report(result.report, output, settings.text("index")));
  const auto bad = std::ranges::count_if(report.cases, [](const auto& row) { return row.status == "failed"; });
  if (!settings.on("quiet")) NMC_RETURN_IF_ERROR(write_standard_output(experiments_text(report, output)));
  for (const evidence::CaseRow& row : report.cases) {
    if (!row.done()) fmt::print(stderr, "{} (repeat {}): {}: {}\n", row.key.name(), row.repeat, row.status, row.reason);
  }
  if (result.interrupted) return kExitInterrupted;
  return bad == 0 ? kExitDone : kExitNotDone;
}

}  // namespace

Command experiments_command() {
  Command command{
      .name = "experiments",
      .summary = "the suite of experiments over the real runtimes, with a report",
      .purpose =
          "Runs each case as processes of its own: a workload, on one worker or on prefill and decode workers, without "
          "or with the global cache, from a cold, a warm or a memory that was full, with or without a fault. Writes a "
          "report that says what every request took and where its figures come from, and appends it to the registry "
          "that "
          "`results` and the gates read.\n\n"
          "Everything but times is the same for the same seed. Each repeat runs the cases in turn, every other one "
          "backwards. Interrupted, it keeps the cases that were complete.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake experiments --output results/reports/single_machine_report.json",
      .run = run,
  };
  command.settings = {{.name = "output",
                       .placeholder = "FILE",
                       .default_text = "results/reports/experiments.json",
                       .help = "The report, replaced whole; folders are made.",
                       .source = Source::kFlagOnly},
                      index_setting("The registry that gets the run's record.")};
  for (Setting& setting : suite_settings()) command.settings.push_back(std::move(setting));
  command.settings.push_back(quiet_setting());
  return command;
}

}  // namespace nmc::cli
