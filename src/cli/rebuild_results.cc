// `nano-mooncake rebuild-results`: the registry of runs, made anew from their reports.
#include <fmt/core.h>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "evidence/registry.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::Rebuilt rebuilt,
                       evidence::rebuild_registry(settings.text("reports"), settings.text("index")));
  for (const std::string& why : rebuilt.left_out) fmt::print(stderr, "left out: {}\n", why);
  if (!settings.on("quiet")) fmt::print("{}: {} runs\n", settings.text("index"), rebuilt.records);
  return rebuilt.left_out.empty() ? kExitDone : kExitJudgedFailed;
}

}  // namespace

Command rebuild_results_command() {
  Command command{
      .name = "rebuild-results",
      .summary = "the registry of runs, made anew from their reports",
      .purpose =
          "Reads every report of the experiments (*.json) below a folder, checks its digest, and writes the "
          "registry that names them, in the order in which the runs ended. Reports that fail are listed and left "
          "out. The registry is replaced whole or stays as it is.",
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake rebuild-results --reports results/reports --index results/index.jsonl",
      .run = run,
  };
  command.settings = with_common_settings({{.name = "reports",
                                            .placeholder = "DIR",
                                            .default_text = "results/reports",
                                            .help = "Where the reports are; folders below it are searched, too.",
                                            .source = Source::kFlagOnly},
                                           index_setting("The registry to write.")},
                                          false);
  return command;
}

}  // namespace nmc::cli
