// The command line of `nano-mooncake slo` as options of a measurement.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/setting.h"
#include "cli/settings.h"
#include "lab/slo.h"
#include "lab/slo_report.h"

namespace nmc::cli {

std::vector<Setting> slo_settings();

// Everything that can be checked without the server is; the model's name stays empty where it has to be asked for.
Result<lab::SloOptions> slo_options_of(const Settings& settings);
lab::SloLabels slo_labels_of(const Settings& settings, const lab::SloOptions& options);

}  // namespace nmc::cli
