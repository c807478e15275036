// `nano-mooncake acceptance-report`: all gates over a registry, one verdict.
#include <fmt/core.h>

#include "cli/acceptance.h"
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/verdict_report.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::Budget budget, acceptance_budget(settings));
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  const auto found = cohort_of(history, settings);
  if (!found) return without_evidence(found.error().message, settings);
  const evidence::Cohort& cohort = *found;
  NMC_ASSIGN_OR_RETURN(
      const evidence::Acceptance acceptance,
      evidence::judge_acceptance(cohort, budget, acceptance_options(settings, settings.text("index"))));
  NMC_RETURN_IF_ERROR(write_verdict(acceptance_report(acceptance), settings));
  return exit_code_of(acceptance.verdict);
}

}  // namespace

Command acceptance_report_command() {
  std::vector<Setting> settings = acceptance_settings();
  settings.insert(settings.begin(), index_setting("The registry of runs."));
  return {
      .name = "acceptance-report",
      .summary = "the verdict on a history of runs: accepted, blocked or insufficient_evidence",
      .purpose =
          "Judges the runs of the newest run's machine, model and build by six gates: provenance, determinism, "
          "pressure, fault, decision and parity. One that fails blocks; evidence that is missing is said to be "
          "missing.",
      .settings = with_verdict_settings(std::move(settings)),
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence},
      .example = "nano-mooncake acceptance-report --index results/index.jsonl --output results/acceptance.json",
      .run = run,
  };
}

}  // namespace nmc::cli
