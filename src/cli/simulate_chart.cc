// The charts of a simulation: those of its report.
#include "cli/chart_report.h"
#include "cli/simulate_report.h"

namespace nmc::cli {

Result<std::string> simulation_chart(const Report& report, bool html) {
  NMC_ASSIGN_OR_RETURN(std::vector<ChartSection> sections, chart_sections({{"this run", report.json}}));
  if (!html) return charts_svg("nano-mooncake simulation", sections);
  sections.front().text = report.text;
  return charts_html("nano-mooncake simulation", sections);
}

}  // namespace nmc::cli
