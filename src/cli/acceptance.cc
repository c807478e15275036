#include "cli/acceptance.h"

#include <filesystem>

#include "cli/evidence_settings.h"

namespace nmc::cli {

std::vector<Setting> acceptance_settings() {
  return {budget_setting(),
          {.name = "calibrated-budget",
           .placeholder = "FILE",
           .default_text = std::string(evidence::kCalibratedBudget),
           .help = "The budget calibrated on this machine, where one is required.",
           .source = Source::kFlagOnly},
          profile_setting("pressure-profile"),
          {.name = "require-calibrated-pressure-history",
           .kind = Kind::kSwitch,
           .default_text = "false",
           .help = "Times are judged by limits of this machine's own history only; without it the verdict is "
                   "insufficient_evidence and names the command that supplies it.",
           .source = Source::kFlagOnly}};
}

Result<evidence::Budget> acceptance_budget(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(evidence::Budget budget, evidence::read_budget(settings.text("budget")));
  NMC_RETURN_IF_ERROR(evidence::rules_of(budget, settings.text("pressure-profile")));
  std::error_code ignored;
  if (!settings.on("require-calibrated-pressure-history") ||
      !std::filesystem::exists(settings.text("calibrated-budget"), ignored))
    return budget;
  NMC_ASSIGN_OR_RETURN(const evidence::Budget calibrated, evidence::read_budget(settings.text("calibrated-budget")));
  return evidence::with_calibration(std::move(budget), calibrated);
}

evidence::PressureOptions acceptance_options(const Settings& settings, std::string index) {
  return {.profile = settings.text("pressure-profile"),
          .require_calibrated = settings.on("require-calibrated-pressure-history"),
          .index = std::move(index),
          .budget_path = settings.text("budget")};
}

}  // namespace nmc::cli
