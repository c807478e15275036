// `nano-mooncake experiments`: the suite over the real runtimes, a report, a record in the registry.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
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

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(SuiteOptions options, suite_options_of(settings));
  show_progress(options, settings);
  NMC_ASSIGN_OR_RETURN(const SuiteResult result, run_suite(options, stop));
  const Path output = settings.text("output");
  NMC_ASSIGN_OR_RETURN(const evidence::ExperimentReport report,
                       file_report(result.report, output, settings.text("index")));
  const auto bad = std::ranges::count_if(report.cases, [](const auto& row) { return row.status == "failed"; });
  if (!settings.on("quiet")) {
    const evidence::BuildIdentity& build = report.provenance.build;
    std::string text = format_table(table_of(report));
    text += fmt::format("\nrun {}: {} cases in {}, {}{}{}\n", report.run_id, report.cases.size(), output.string(),
                        report.provenance.evidence_tier, build.dirty ? ", from a tree with changes no commit has" : "",
                        build.build_type == "Release" ? "" : ", " + build.build_type + " build: its times mean little");
    NMC_RETURN_IF_ERROR(write_standard_output(text));
  }
  for (const evidence::CaseRow& row : report.cases) {
    if (!row.done()) fmt::print(stderr, "{} (repeat {}): {}: {}\n", row.key.name(), row.repeat, row.status, row.reason);
  }
  if (result.interrupted) return kExitInterrupted;
  return bad == 0 ? kExitDone : kExitNotDone;
}

}  // namespace

Command experiments_command() {
  Command command{
      .name = "experiments",
      .summary = "the suite of experiments over the real runtimes, with a report",
      .purpose =
          "Runs each case as processes of its own: a workload, on one worker or on prefill and decode workers, without "
          "or with the global cache, from a cold, a warm or a memory that was full, with or without a fault. Writes a "
          "report that says what every request took and where its figures come from, and appends it to the registry "
          "that "
          "`results` and the gates read.\n\n"
          "Everything but times is the same for the same seed. Each repeat runs the cases in turn, every other one "
          "backwards. Interrupted, it keeps the cases that were complete.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake experiments --output results/reports/single_machine_report.json",
      .run = run,
  };
  command.settings = {{.name = "output",
                       .placeholder = "FILE",
                       .default_text = "results/reports/experiments.json",
                       .help = "The report, replaced whole; folders are made.",
                       .source = Source::kFlagOnly},
                      index_setting("The registry that gets the run's record.")};
  for (Setting& setting : suite_settings()) command.settings.push_back(std::move(setting));
  command.settings.push_back(quiet_setting());
  return command;
}

}  // namespace nmc::cli
