#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/experiment_suite.h"
#include "cli/output.h"

namespace nmc::cli {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

// A line a case, its repeats together.
Table table_of(const evidence::ExperimentReport& report) {
  Table table{.columns = {"workload", "mode", "transfer", "ratio", "lifecycle", "fault", "status", "requests",
                          "ttft_ms_p50", "e2e_ms_p50", "computed_tokens", "saved_tokens"},
              .rows = {}};
  std::vector<evidence::CaseKey> order;
  std::map<evidence::CaseKey, std::vector<const evidence::CaseRow*>> cases;
  for (const evidence::CaseRow& row : report.cases) {
    if (cases[row.key].empty()) order.push_back(row.key);
    cases[row.key].push_back(&row);
  }
  for (const evidence::CaseKey& key : order) {
    std::map<std::string, std::vector<double>> samples;
    std::string status = "done";
    std::uint64_t requests = 0;
    for (const evidence::CaseRow* row : cases[key]) {
      if (!row->done()) status = row->status;
      requests += row->requests.size();
      for (const evidence::RequestRow& request : row->requests)
        for (const auto& [name, value] : request.metrics) samples[name].push_back(value);
    }
    const auto sum = [&](const char* name) {
      double total = 0;
      for (const double value : samples[name]) total += value;
      return static_cast<std::uint64_t>(total);
    };
    table.rows.push_back({key.workload, key.mode, key.transfer, key.ratio, key.lifecycle, key.fault, status, requests,
                          Cell(median(samples["ttft_ms"]), 2), Cell(median(samples["e2e_ms"]), 2),
                          sum("computed_tokens"), sum("saved_tokens")});
  }
  return table;
}

}  // namespace

std::string experiments_text(const evidence::ExperimentReport& report, const Path& output) {
  const evidence::BuildIdentity& build = report.provenance.build;
  return format_table(table_of(report)) +
         fmt::format("\nrun {}: {} cases in {}, {}{}{}\n", report.run_id, report.cases.size(), output.string(),
                     report.provenance.evidence_tier, build.dirty ? ", from a tree with changes no commit has" : "",
                     build.build_type == "Release" ? "" : ", " + build.build_type + " build: its times mean little");
}

}  // namespace nmc::cli
