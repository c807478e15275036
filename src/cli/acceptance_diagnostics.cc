// `nano-mooncake acceptance-diagnostics`: what a finished acceptance run needs to be understood.
#include <fmt/core.h>

#include "base/files.h"
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "evidence/diagnostics.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  const Path folder = settings.text("run-dir");
  Report report;
  NMC_ASSIGN_OR_RETURN(report.json, evidence::make_diagnostics(folder));
  NMC_RETURN_IF_ERROR(write_file_atomic(folder / evidence::kRunDiagnostics, render_report(report, Format::kJson)));
  report.table.columns = {"gate", "verdict", "finding", "next"};
  for (const Json& gate : report.json["gates"]) {
    const Json& findings = gate["findings"];
    report.table.rows.push_back({gate["gate"].get<std::string>(), gate["verdict"].get<std::string>(),
                                 findings.empty() ? std::string() : printable(findings[0].get<std::string>()),
                                 gate["next"].get<std::string>()});
  }
  report.text = (report.table.rows.empty() ? std::string() : format_table(report.table) + "\n") +
                fmt::format("{}: {}\n", folder.string(), report.json["verdict"].get<std::string>());
  NMC_RETURN_IF_ERROR(write_verdict(report, settings));
  return kExitDone;
}

}  // namespace

Command acceptance_diagnostics_command() {
  return {
      .name = "acceptance-diagnostics",
      .summary = "why an acceptance run ended as it did",
      .purpose =
          "From the files of a finished run: for each gate that didn't pass what it found, which stage and resource a "
          "failed limit is attributed to, and the command that tells or supplies more. Writes diagnostics.json into "
          "the run's folder. The verdict is read, never judged again.",
      .settings = with_verdict_settings({{.name = "run-dir",
                                          .placeholder = "DIR",
                                          .default_text = "results/acceptance_runs/latest",
                                          .help = "The folder of acceptance-run.",
                                          .source = Source::kFlagOnly}}),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake acceptance-diagnostics --run-dir results/acceptance_runs/latest",
      .run = run,
  };
}

}  // namespace nmc::cli
