// `nano-mooncake local-hf-benchmark`: the suite on a checkpoint of this machine, never from the network.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/experiment_suite.h"
#include "cli/output.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"
#include "lab/parity.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kTinyLlama = "models--TinyLlama--TinyLlama-1.1B-Chat-v1.0";

// Where Hugging Face's tools keep what they fetched.
Path hub_cache() {
  if (const char* hub = std::getenv("HF_HUB_CACHE"); hub != nullptr && *hub != '\0') return hub;
  if (const char* home = std::getenv("HF_HOME"); home != nullptr && *home != '\0') return Path(home) / "hub";
  const char* home = std::getenv("HOME");
  return Path(home == nullptr ? "/" : home) / ".cache" / "huggingface" / "hub";
}

// The snapshot that was fetched last; kNotFound with where it was looked for.
Result<Path> cached_tinyllama() {
  const Path folder = hub_cache() / kTinyLlama / "snapshots";
  std::vector<Path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (std::filesystem::exists(entry.path() / "config.json", ignored)) found.push_back(entry.path());
  }
  if (found.empty()) return not_found("no snapshot of TinyLlama in {}", folder.string());
  return *std::ranges::max_element(found, {},
                                   [&](const Path& path) { return std::filesystem::last_write_time(path, ignored); });
}

Result<Path> checkpoint_of(const Settings& settings) {
  if (settings.has("hf-model-path") == settings.has("preset"))
    return invalid_argument("--hf-model-path or --preset: expected one of them");
  if (settings.has("preset")) return cached_tinyllama();
  const Path path = settings.text("hf-model-path");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return not_found("{}: no checkpoint there", path.string());
  return path;
}

Result<int> skip(const Settings& settings, const Error& why) {
  if (!settings.on("skip-if-missing")) return invalid_argument("{}", why.message);
  if (!settings.on("quiet")) fmt::print("skipped: {}\n", why.message);
  if (!settings.on("write-skipped")) return kExitDone;
  evidence::ExperimentReport report{.run_id = evidence::new_run_id(),
                                    .started_at = evidence::utc_now(),
                                    .ended_at = evidence::utc_now(),
                                    .suite = settings.text("suite"),
                                    .skipped = why.message,
                                    .provenance = {.evidence_tier = std::string(evidence::kTierCheckpoint),
                                                   .build = lab::build_identity(),
                                                   .machine = lab::machine_identity(),
                                                   .model = {.name = settings.text_or("preset", "checkpoint"),
                                                             .digest = std::string(evidence::kUnknown)}}};
  const std::string text = dump_json_pretty(evidence::report_json(report)) + "\n";
  NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), text));
  return kExitDone;
}

Result<std::vector<evidence::ParityRow>> parity_of(const SuiteOptions& options, const Settings& settings) {
  ThreadPool pool(threads_of(settings));
  NMC_ASSIGN_OR_RETURN(const model::Model model, model::load_model(options.model, dtype_of(settings), pool));
  const bool folder = std::filesystem::is_directory(options.model);
  return lab::check_parity(
      model, {.seed = options.seed, .folder = folder ? options.model : "", .python = settings.text("python")}, pool);
}

std::string parity_text(const evidence::ExperimentReport& report) {
  std::string text;
  for (const evidence::ParityRow& row : report.parity)
    text += fmt::format("parity with {}: {} ({})\n", row.against, row.status, row.detail);
  return text;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(SuiteOptions options, suite_options_of(settings));
  const Result<Path> checkpoint = checkpoint_of(settings);
  if (!checkpoint && checkpoint.error().code == ErrorCode::kNotFound) return skip(settings, checkpoint.error());
  if (!checkpoint) return Failure(checkpoint.error());
  options.model = checkpoint->string();
  show_progress(options, settings);
  NMC_ASSIGN_OR_RETURN(std::vector<evidence::ParityRow> parity, parity_of(options, settings));
  NMC_ASSIGN_OR_RETURN(SuiteResult result, run_suite(options, stop));
  result.report.parity = std::move(parity);
  NMC_ASSIGN_OR_RETURN(const evidence::ExperimentReport report,
                       file_report(result.report, settings.text("output"), settings.text("index")));
  if (!settings.on("quiet"))
    NMC_RETURN_IF_ERROR(write_standard_output(experiments_text(report, settings.text("output")) + parity_text(report)));
  if (result.interrupted) return kExitInterrupted;
  const bool done = std::ranges::all_of(report.cases, &evidence::CaseRow::done);
  return done ? kExitDone : kExitNotDone;
}

}  // namespace

Command local_hf_benchmark_command() {
  Command command{
      .name = "local-hf-benchmark",
      .summary = "the experiments on a checkpoint of this machine",
      .purpose =
          "Runs the suite on a checkpoint that is here already, never from the network, and writes a report of "
          "evidence "
          "tier local-checkpoint. Before that the served path's logits are compared with one pass over the whole "
          "sequence without paging or cache, and with the Python package transformers where that can be imported.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake local-hf-benchmark --preset tinyllama-cache --skip-if-missing --write-skipped",
      .run = run,
  };
  std::vector<Setting> settings = {
      {.name = "hf-model-path",
       .placeholder = "DIR",
       .default_text = "",
       .help = "A checkpoint folder in Hugging Face layout, or a GGUF file.",
       .source = Source::kFlagOnly},
      {.name = "preset",
       .kind = Kind::kChoice,
       .placeholder = "tinyllama-cache",
       .default_text = "",
       .help = "Instead of a path: TinyLlama 1.1B Chat as Hugging Face's tools have it in their cache (HF_HOME).",
       .choices = {"tinyllama-cache"},
       .source = Source::kFlagOnly},
      {.name = "output",
       .placeholder = "FILE",
       .default_text = "results/reports/local_hf_report.json",
       .help = "The report, replaced whole; folders are made.",
       .source = Source::kFlagOnly},
      index_setting("The registry that gets the run's record; one that was skipped gets none."),
      {.name = "skip-if-missing",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "A checkpoint that isn't there is no failure.",
       .source = Source::kFlagOnly},
      {.name = "write-skipped",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Then write a report that says so, and why.",
       .source = Source::kFlagOnly},
      {.name = "python",
       .placeholder = "PROGRAM",
       .default_text = "python3",
       .help = "The Python that may have transformers.",
       .source = Source::kFlagOnly}};
  std::vector<Setting> suite = suite_settings();
  set_default(suite, "suite", "smoke");
  set_default(suite, "repeats", "1");
  set_default(suite, "dram-bytes", "2GiB");
  set_default(suite, "case-timeout-s", "3600");
  for (Setting& setting : suite) settings.push_back(std::move(setting));
  settings.push_back(quiet_setting());
  std::ranges::find(settings, "model", &Setting::name)->source = Source::kFileOrVariable;
  command.settings = std::move(settings);
  return command;
}

}  // namespace nmc::cli
