// What acceptance-report and acceptance-run have in common.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/setting.h"
#include "cli/settings.h"
#include "evidence/acceptance.h"

namespace nmc::cli {

// --budget, --calibrated-budget, --pressure-profile, --require-calibrated-pressure-history.
std::vector<Setting> acceptance_settings();

// The budget of --budget; with --require-calibrated-pressure-history its times have the limits of --calibrated-budget,
// where that is there.
Result<evidence::Budget> acceptance_budget(const Settings& settings);
// `index` is what a command that calibrates would read.
evidence::PressureOptions acceptance_options(const Settings& settings, std::string index);

}  // namespace nmc::cli
