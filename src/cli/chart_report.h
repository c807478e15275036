// Reports of this program's commands to charts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/chart.h"

namespace nmc::cli {

struct ReportFile {
  std::string name;  // where it comes from, for messages, and with its last part for legends
  Json json;
};

// A section a kind of report, in the order of the first of each; reports of one kind side by side. The first thing that
// isn't as docs/formats.md has it is kInvalidArgument with file, path and what was expected.
Result<std::vector<ChartSection>> chart_sections(const std::vector<ReportFile>& files);

}  // namespace nmc::cli
