// `nano-mooncake decision-gap`: what is missing for a verdict, and the command that supplies it.
#include <fmt/core.h>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "evidence/decision.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  NMC_ASSIGN_OR_RETURN(const evidence::Cohort cohort, cohort_of(history, settings));
  const evidence::DecisionOptions options{.margin = settings.seconds("margin")};
  std::vector<evidence::Decision> decisions = evidence::decide(cohort, options);
  for (evidence::Decision& decision : evidence::frontier(cohort, options)) decisions.push_back(std::move(decision));
  const auto missing = evidence::missing_evidence(cohort, decisions, options, settings.text("index"));
  Report report{.json = evidence::missing_json(missing),
                .text = "",
                .table = {.columns = {"question", "treatment", "missing", "command"}, .rows = {}}};
  for (const evidence::MissingEvidence& one : missing) {
    report.table.rows.push_back({one.decision.question, one.decision.treatment.name(), one.missing, one.command});
    report.text += fmt::format("{}: {}\n  why: {}\n  missing: {}\n", one.decision.question,
                               one.decision.treatment.name(), one.decision.reason, one.missing);
    if (!one.command.empty()) report.text += fmt::format("  run: {}\n", one.command);
  }
  report.text += fmt::format("{} of {} decisions lack evidence\n", missing.size(), decisions.size());
  NMC_RETURN_IF_ERROR(write_verdict(report, settings));
  return missing.empty() ? kExitDone : kExitInsufficientEvidence;
}

}  // namespace

Command decision_gap_command() {
  return {
      .name = "decision-gap",
      .summary = "what is missing for a verdict, and the command that supplies it",
      .purpose =
          "For each decision of the frontier and decision views without enough evidence: a control, more starts of the "
          "system, or a narrower interval, and the command that adds it to the registry. The workload stays the same.",
      .settings = with_verdict_settings({index_setting("The registry of runs."),
                                         {.name = "margin",
                                          .kind = Kind::kNumber,
                                          .placeholder = "PART",
                                          .default_text = "0.05",
                                          .help = "As for `results`.",
                                          .low = 0,
                                          .high = 1,
                                          .source = Source::kFlagOnly}}),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence},
      .example = "nano-mooncake decision-gap --index results/index.jsonl",
      .run = run,
  };
}

}  // namespace nmc::cli
