// `nano-mooncake pressure-budget`: limits on what was measured, judged or calibrated.
#include <fmt/core.h>

#include "base/files.h"
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/verdict_report.h"
#include "evidence/budget.h"

namespace nmc::cli {
namespace {

Result<int> calibrate(const Settings& settings, const evidence::Budget& budget, const evidence::History& history) {
  if (!settings.has("output"))
    return invalid_argument("--output: not given, expected a file for the calibrated budget");
  const auto found = evidence::runs_of_machine(history);
  if (!found) return without_evidence(found.error().message, settings);
  const evidence::Cohort& cohort = *found;
  const auto calibrated = evidence::calibrate(budget, settings.text("profile"), cohort, settings.seconds("margin"),
                                              settings.count("min-runs"));
  if (!calibrated && calibrated.error().code != ErrorCode::kNotFound) return Failure(calibrated.error());
  if (!calibrated) return without_evidence(calibrated.error().message, settings);
  NMC_RETURN_IF_ERROR(
      write_file_atomic(settings.text("output"), dump_json_pretty(evidence::budget_json(*calibrated)) + "\n"));
  if (!settings.on("quiet")) {
    NMC_RETURN_IF_ERROR(write_standard_output(fmt::format(
        "{}: profile {} calibrated from {} runs of this machine, with a margin of {:g}\n", settings.text("output"),
        settings.text("profile"), cohort.runs.size(), settings.seconds("margin"))));
  }
  return kExitDone;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::Budget budget, evidence::read_budget(settings.text("budget")));
  NMC_RETURN_IF_ERROR(evidence::rules_of(budget, settings.text("profile")));
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  if (settings.on("calibrate")) return calibrate(settings, budget, history);
  const auto found = cohort_of(history, settings);
  if (!found) return without_evidence(found.error().message, settings);
  const evidence::Cohort& cohort = *found;
  NMC_ASSIGN_OR_RETURN(const evidence::PressureVerdict verdict,
                       evidence::judge_pressure(cohort, budget,
                                                {.profile = settings.text("profile"),
                                                 .require_calibrated = settings.on("require-calibrated"),
                                                 .index = settings.text("index"),
                                                 .budget_path = settings.text("budget")}));
  NMC_RETURN_IF_ERROR(write_verdict(pressure_report(verdict), settings));
  return exit_code_of(verdict.verdict);
}

}  // namespace

Command pressure_budget_command() {
  Command command{
      .name = "pressure-budget",
      .summary = "judges what was measured by limits, or calibrates those",
      .purpose =
          "Each rule of a profile limits a statistic of a metric over the runs of the newest run's machine, model and "
          "build: pass, fail, or insufficient_evidence where there are too few samples. The whole passes when every "
          "rule does.\n\n"
          "With --calibrate nothing is judged: the limits of times are set from all runs of this machine, model and "
          "build type, the worst of them and a margin on top, and written with the runs they come from. Counters keep "
          "their limits.",
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence},
      .example = "nano-mooncake pressure-budget --profile full --output results/pressure_budget_full.json",
      .run = run,
  };
  command.settings =
      with_verdict_settings({index_setting("The registry of runs."),
                             budget_setting(),
                             profile_setting(),
                             {.name = "require-calibrated",
                              .kind = Kind::kSwitch,
                              .default_text = "false",
                              .help = "A limit on a time counts only if it was calibrated on this machine.",
                              .source = Source::kFlagOnly},
                             {.name = "calibrate",
                              .kind = Kind::kSwitch,
                              .default_text = "false",
                              .help = "Set limits instead of judging by them; --output gets the new budget.",
                              .source = Source::kFlagOnly},
                             {.name = "margin",
                              .kind = Kind::kNumber,
                              .placeholder = "PART",
                              .default_text = "0.25",
                              .help = "How far beyond the worst run a calibrated limit lies, as a part of it.",
                              .low = 0,
                              .high = 100,
                              .source = Source::kFlagOnly},
                             {.name = "min-runs",
                              .kind = Kind::kInteger,
                              .placeholder = "N",
                              .default_text = "2",
                              .help = "Runs that a calibration needs at least.",
                              .low = 1,
                              .high = 1000,
                              .source = Source::kFlagOnly}});
  return command;
}

}  // namespace nmc::cli
