// `nano-mooncake pressure-diagnosis`, `pressure-incident` and `pressure-margin`: explanations, no verdicts.
#include <fmt/core.h>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "evidence/diagnosis.h"
#include "evidence/incident.h"

namespace nmc::cli {
namespace {

Result<int> run_diagnosis(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  const auto diagnosis = evidence::diagnose(history, settings.text_or("run", ""), settings.text_or("baseline", ""));
  const bool nothing_named = !settings.has("run") && !settings.has("baseline");
  if (!diagnosis && (diagnosis.error().code != ErrorCode::kNotFound || !nothing_named))
    return Failure(diagnosis.error());
  const bool can_tell = diagnosis && diagnosis->compared > diagnosis->without_noise;
  if (!can_tell)
    return without_evidence(
        diagnosis ? "no request was measured twice before and again now" : diagnosis.error().message, settings);
  Report report{.json = evidence::diagnosis_json(*diagnosis), .text = "", .table = {}};
  report.table.columns = {"case",  "request", "before_e2e_ms", "now_e2e_ms", "noise_ms",
                          "phase", "grew_ms", "share",         "resource"};
  for (const evidence::Regression& row : diagnosis->regressions) {
    const evidence::Phase& phase = evidence::kPhases[row.phase];
    report.table.rows.push_back({row.key.name(), row.request, Cell(row.before_ms, 3), Cell(row.now_ms, 3),
                                 Cell(row.noise_ms, 3), std::string(phase.metric), Cell(row.growth_ms[row.phase], 3),
                                 Cell(row.share(), 2), std::string(phase.resource)});
  }
  report.text = format_table(report.table);
  report.text +=
      fmt::format("\n{} of {} requests slower in run {} than in {}\n", diagnosis->regressions.size(),
                  diagnosis->compared - diagnosis->without_noise, diagnosis->run, fmt::join(diagnosis->baseline, ", "));
  for (const std::string& caveat : diagnosis->caveats) report.text += caveat + "\n";
  NMC_RETURN_IF_ERROR(write_verdict(report, settings));
  return kExitDone;
}

struct Judged {
  evidence::History history;
  evidence::Cohort cohort;  // of it
  evidence::PressureVerdict verdict;
};

// The budget's own verdict, to be explained.
Result<void> judge(const Settings& settings, Judged& judged) {
  NMC_ASSIGN_OR_RETURN(const evidence::Budget budget, evidence::read_budget(settings.text("budget")));
  NMC_ASSIGN_OR_RETURN(judged.history, history_of(settings));
  NMC_ASSIGN_OR_RETURN(judged.cohort, cohort_of(judged.history, settings));
  NMC_ASSIGN_OR_RETURN(judged.verdict, evidence::judge_pressure(judged.cohort, budget,
                                                                {.profile = settings.text("profile"),
                                                                 .index = settings.text("index"),
                                                                 .budget_path = settings.text("budget")}));
  return {};
}

Result<int> run_incident(const Settings& settings) {
  Judged judged;
  NMC_RETURN_IF_ERROR(judge(settings, judged));
  const auto incidents = evidence::explain_failures(judged.history, judged.cohort, judged.verdict);
  Report report{.json = evidence::incidents_json(judged.verdict, incidents), .text = "", .table = {}};
  report.table.columns = {"rule", "phase", "resource", "evidence", "ruled_out"};
  for (const evidence::Incident& one : incidents)
    report.table.rows.push_back({one.rule.rule.id, one.phase, one.resource, one.evidence, one.ruled_out});
  report.text = incidents.empty() ? "no rule failed\n" : format_table(report.table);
  NMC_RETURN_IF_ERROR(write_verdict(report, settings));
  return kExitDone;
}

Result<int> run_margin(const Settings& settings) {
  Judged judged;
  NMC_RETURN_IF_ERROR(judge(settings, judged));
  const double near = settings.seconds("near");
  const auto found = evidence::near_misses(judged.cohort, judged.verdict, near);
  Report report{.json = evidence::near_misses_json(judged.verdict, found, near), .text = "", .table = {}};
  report.table.columns = {"rule", "verdict", "value", "limit", "margin", "runs", "trend", "noise"};
  for (const evidence::NearMiss& one : found) {
    const bool several = one.values.size() > 1;
    report.table.rows.push_back(
        {one.rule.rule.id, std::string(evidence::verdict_name(one.rule.verdict)), Cell(*one.rule.measured.value, 3),
         Cell(one.rule.rule.effective_limit(), 3), Cell(one.margin, 3), std::uint64_t{one.values.size()},
         several ? Cell(one.trend, 3) : Cell("not_available"), several ? Cell(one.noise, 3) : Cell("not_available")});
  }
  report.text = found.empty() ? fmt::format("no rule is within {:g} of its limit\n", near) : format_table(report.table);
  NMC_RETURN_IF_ERROR(write_verdict(report, settings));
  return kExitDone;
}

Setting run_setting(std::string name, std::string help) {
  return {.name = std::move(name),
          .placeholder = "ID",
          .default_text = "",
          .help = std::move(help),
          .source = Source::kFlagOnly};
}

}  // namespace

Command pressure_diagnosis_command() {
  return {
      .name = "pressure-diagnosis",
      .summary = "which requests got slower, and in which stage",
      .purpose =
          "Compares a run with an earlier one of the same machine, model and kind of evidence, request by request: "
          "those that took longer by more than repeats and runs differ, with the stage that grew most. Explains; "
          "changes "
          "no verdict.",
      .settings = with_verdict_settings(
          {index_setting("The registry of runs."), run_setting("run", "The run to explain. Default: the newest."),
           run_setting("baseline", "The run to compare with. Default: the newest before it.")}),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence},
      .example = "nano-mooncake pressure-diagnosis --index results/index.jsonl",
      .run = run_diagnosis,
  };
}

Command pressure_incident_command() {
  return {
      .name = "pressure-incident",
      .summary = "what a failed rule of a pressure budget is due to",
      .purpose =
          "Attributes each rule that failed to a stage and a resource, with the figures, and with the alternative that "
          "they rule out. Explains; changes no verdict.",
      .settings = with_verdict_settings({index_setting("The registry of runs."), budget_setting(), profile_setting()}),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake pressure-incident --index results/index.jsonl --budget docs/pressure_budgets.json",
      .run = run_incident,
  };
}

Command pressure_margin_command() {
  return {
      .name = "pressure-margin",
      .summary = "which rules of a pressure budget are near their limit",
      .purpose =
          "Lists rules within a margin of their limit on either side, with their values run by run, the trend from the "
          "first to the last, and the noise among them. Explains; changes no verdict.",
      .settings = with_verdict_settings({index_setting("The registry of runs."),
                                         budget_setting(),
                                         profile_setting(),
                                         {.name = "near",
                                          .kind = Kind::kNumber,
                                          .placeholder = "PART",
                                          .default_text = "0.1",
                                          .help = "How near, as a part of the limit.",
                                          .low = 0,
                                          .high = 100,
                                          .source = Source::kFlagOnly}}),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake pressure-margin --index results/index.jsonl --near 0.2",
      .run = run_margin,
  };
}

}  // namespace nmc::cli
