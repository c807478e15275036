// `nano-mooncake fault-budget`: what has to hold whatever fails.
#include "evidence/fault_budget.h"

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/verdict_report.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  const auto found = cohort_of(history, settings);
  if (!found) return without_evidence(found.error().message, settings);
  const evidence::Cohort& cohort = *found;
  const evidence::FaultVerdict verdict = evidence::judge_faults(cohort);
  NMC_RETURN_IF_ERROR(write_verdict(fault_report(verdict), settings));
  return exit_code_of(verdict.verdict);
}

}  // namespace

Command fault_budget_command() {
  return {
      .name = "fault-budget",
      .summary = "judges whether the invariants held under faults",
      .purpose =
          "No handle, slot, process or shared memory is left behind; as many entries are quarantined as were damaged; "
          "each injected fault was observed in the process it was meant for; every request was told one end, and the "
          "answer that it has without the fault. Judged over the runs of the newest run's machine, model and build. A "
          "fault that couldn't be injected is insufficient_evidence, never a pass.",
      .settings = with_verdict_settings({index_setting("The registry of runs.")}),
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence},
      .example = "nano-mooncake fault-budget --index results/index.jsonl --output results/fault_budget_full.json",
      .run = run,
  };
}

}  // namespace nmc::cli
