// `nano-mooncake evidence-summary`: a verdict in a few lines, for a pull request.
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "evidence/diagnostics.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  if (settings.has("bundle") == settings.has("run-dir"))
    return invalid_argument("--bundle or --run-dir: expected one of them");
  NMC_ASSIGN_OR_RETURN(const evidence::EvidenceSummary summary,
                       evidence::summarize_evidence(settings.text(settings.has("bundle") ? "bundle" : "run-dir")));
  Report report{.json = summary.json, .text = "", .table = {.columns = {"gate", "verdict", "summary"}, .rows = {}}};
  for (const Json& gate : summary.json["gates"]) {
    report.table.rows.push_back({gate["gate"].get<std::string>(), gate["verdict"].get<std::string>(),
                                 printable(gate["summary"].get<std::string>())});
  }
  report.text = format_table(report.table) + "\n" + summary.verdict + "\n";
  if (settings.text("format") != "markdown") {
    NMC_RETURN_IF_ERROR(write_report(report, settings));
    return kExitDone;
  }
  if (settings.has("output"))
    NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), summary.markdown));
  else
    NMC_RETURN_IF_ERROR(write_standard_output(summary.markdown));
  return kExitDone;
}

}  // namespace

Command evidence_summary_command() {
  return {
      .name = "evidence-summary",
      .summary = "a verdict in a few lines, for a pull request",
      .purpose =
          "What an acceptance run decided, a line a gate, from its folder or from a bundle that holds its verdict. "
          "Says what was judged and judges nothing.",
      .settings = with_common_settings({{.name = "bundle",
                                         .placeholder = "DIR",
                                         .default_text = "",
                                         .help = "An evidence bundle as a folder.",
                                         .source = Source::kFlagOnly},
                                        {.name = "run-dir",
                                         .placeholder = "DIR",
                                         .default_text = "",
                                         .help = "The folder of acceptance-run.",
                                         .source = Source::kFlagOnly}},
                                       true),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake evidence-summary --run-dir results/acceptance_runs/latest --format markdown",
      .run = run,
  };
}

}  // namespace nmc::cli
