// `nano-mooncake experiment-case`: one case of the experiments, started by `experiments` as a process of its own.
#include "lab/experiment_case.h"

#include <fmt/core.h>

#include "base/failpoint.h"
#include "base/files.h"
#include "cli/case_process.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kAnswerSchema = "nano-mooncake/experiment-case/v1";

Result<lab::WorkloadSpec> workload_of(const Settings& settings) {
  std::string text(lab::built_in_workloads()), name = "the built-in workloads";
  if (settings.has("workloads")) {
    name = settings.text("workloads");
    NMC_ASSIGN_OR_RETURN(text, read_file(name));
  }
  NMC_ASSIGN_OR_RETURN(const std::vector<lab::WorkloadSpec> specs, lab::parse_workloads(text, name));
  for (const lab::WorkloadSpec& spec : specs) {
    if (spec.name == settings.text("workload")) return spec;
  }
  return not_found("{}: no workload {}", name, settings.text("workload"));
}

Result<int> run(const Settings& settings) {
  if (!end_with_parent(settings.integer("parent"))) return unavailable("the experiments have ended");
  NMC_ASSIGN_OR_RETURN(const lab::WorkloadSpec spec, workload_of(settings));
  NMC_ASSIGN_OR_RETURN(Serving serving, Serving::create(settings));
  lab::CaseOptions options{.key = {.workload = spec.name,
                                   .mode = settings.text("experiment-mode"),
                                   .transfer = settings.text("experiment-transfer"),
                                   .ratio = settings.text("ratio"),
                                   .lifecycle = settings.text("lifecycle"),
                                   .fault = settings.text("fault")},
                           .repeat = settings.count("repeat"),
                           .seed = settings.count("seed"),
                           .vocab = static_cast<std::uint32_t>(serving.model().config.vocab),
                           .fault = lab::find_fault(settings.text("fault"))};
  std::optional<std::size_t> max_new_tokens;
  if (settings.integer("max-new-tokens") > 0) max_new_tokens = settings.count("max-new-tokens");
  const lab::Workload workload = lab::make_workload(spec, options.seed, options.vocab, max_new_tokens);
  NMC_ASSIGN_OR_RETURN(const evidence::CaseRow row,
                       lab::run_case(serving.runtime(), serving.store(), workload, options));
  const Json answer = {{"schema", kAnswerSchema},
                       {"model", evidence::model_json(lab::model_identity(serving.model()))},
                       {"case", evidence::case_json(row)}};
  NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), dump_json(answer)));
  return kExitDone;
}

Setting own(std::string name, Kind kind, std::string default_text, std::string help) {
  Setting setting{.name = std::move(name),
                  .kind = kind,
                  .placeholder = "",
                  .default_text = std::move(default_text),
                  .help = std::move(help),
                  .source = Source::kFlagOnly};
  return setting;
}

}  // namespace

Command experiment_case_command() {
  Command command{
      .name = "experiment-case",
      .internal = true,
      .summary = "one case of the experiments",
      .purpose =
          "Starts the system that its flags describe, runs one workload on it and writes what came of each request. "
          "`experiments` starts it.",
      .settings = {own("workload", Kind::kText, "", "The workload's name."),
                   own("workloads", Kind::kText, "", "A file with workloads. Default: the built-in ones."),
                   own("experiment-mode", Kind::kText, "monolithic", "What the report calls the mode."),
                   own("experiment-transfer", Kind::kText, "none", "What the report calls the hand-over."),
                   own("ratio", Kind::kText, "1", "What the report calls the workers."),
                   own("lifecycle", Kind::kText, "cold", "The state of the cache."),
                   own("fault", Kind::kText, "none", "The fault that is injected."),
                   own("repeat", Kind::kInteger, "0", "Its number."),
                   own("seed", Kind::kInteger, "1", "Of the workload."),
                   own("max-new-tokens", Kind::kInteger, "0", "Cuts answers to that length; 0: doesn't."),
                   own("parent", Kind::kInteger, "0", "The process that it ends with."),
                   own("output", Kind::kText, "", "The file for the result.")},
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake experiments --output report.json",
      .run = run,
  };
  for (Setting& setting : serving_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
