#include "cli/evidence_settings.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/exit_code.h"
#include "lab/experiment_workload.h"

namespace nmc::cli {

Setting index_setting(std::string help) {
  return {.name = "index",
          .placeholder = "FILE",
          .default_text = "results/index.jsonl",
          .help = std::move(help),
          .source = Source::kFlagOnly};
}

std::vector<Setting> with_common_settings(std::vector<Setting> own, bool rows) {
  static constexpr std::string_view kServingFlags[] = {"log-level"};
  for (Setting& setting : rows ? report_settings() : std::vector{quiet_setting()}) own.push_back(std::move(setting));
  for (Setting& setting : serving_settings_for(kServingFlags)) own.push_back(std::move(setting));
  return own;
}

std::vector<Setting> with_verdict_settings(std::vector<Setting> own) {
  std::vector<Setting> settings = with_common_settings(std::move(own), true);
  std::ranges::find(settings, "output", &Setting::name)->help =
      "Write the result to FILE as JSON, whole or not at all, making parent folders.";
  return settings;
}

Setting budget_setting() {
  return {.name = "budget",
          .placeholder = "FILE",
          .default_text = "docs/pressure_budgets.json",
          .help = "The budget: rules by profile, with or without a calibration.",
          .source = Source::kFlagOnly};
}

Setting profile_setting(std::string name) {
  return {.name = std::move(name),
          .placeholder = "NAME",
          .default_text = "full",
          .help = "Which of the budget's profiles: smoke or full.",
          .source = Source::kFlagOnly};
}

Result<evidence::BundleInput> bundle_input_of(const Settings& settings, Path index, std::string budget) {
  evidence::BundleInput input{.index = std::move(index),
                              .profile = settings.text("pressure-profile"),
                              .budget_text = "",
                              .budget_name = std::move(budget),
                              .workloads_text = std::string(lab::built_in_workloads()),
                              .verdicts = {}};
  NMC_ASSIGN_OR_RETURN(input.budget_text, read_file(input.budget_name));
  if (settings.has("workloads")) {
    NMC_ASSIGN_OR_RETURN(input.workloads_text, read_file(settings.text("workloads")));
    NMC_RETURN_IF_ERROR(lab::parse_workloads(input.workloads_text, settings.text("workloads")));
  }
  return input;
}

Result<evidence::History> history_of(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(evidence::History history, evidence::load_history(settings.text("index")));
  for (const evidence::History::LeftOut& left : history.left_out)
    fmt::print(stderr, "run {} is left out: {}\n", left.run_id, left.why);
  if (history.torn)
    fmt::print(stderr, "{}: its last line was never finished and is passed over\n", settings.text("index"));
  return history;
}

Result<evidence::Cohort> cohort_of(const evidence::History& history, const Settings& settings) {
  auto cohort = evidence::cohort_of(history);
  if (!cohort) return Failure(std::move(cohort).error().with_context(settings.text("index")));
  for (const evidence::Cohort::Apart& apart : cohort->apart)
    fmt::print(stderr, "run {} isn't judged with the others: {}\n", apart.run_id, apart.why);
  return cohort;
}

int exit_code_of(evidence::Verdict verdict) {
  switch (verdict) {
    case evidence::Verdict::kPass: return kExitDone;
    case evidence::Verdict::kFail: return kExitJudgedFailed;
    case evidence::Verdict::kInsufficient: break;
  }
  return kExitInsufficientEvidence;
}

int without_evidence(std::string_view why, const Settings& settings) {
  fmt::print(stderr,
             "insufficient_evidence: {}\nsupply it by: nano-mooncake experiments --repeats 2 --index {} --output "
             "results/reports/NAME.json\n",
             why, settings.text("index"));
  return kExitInsufficientEvidence;
}

}  // namespace nmc::cli
