// `nano-mooncake acceptance-run`: runs of its own, all gates over them, and everything that a stranger needs to check
// it.
#include <fmt/core.h>

#include <algorithm>

#include "base/files.h"
#include "base/hash.h"
#include "cli/acceptance.h"
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/experiment_suite.h"
#include "cli/output.h"
#include "cli/verdict_report.h"
#include "evidence/bundle.h"
#include "evidence/diagnostics.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kManifestSchema = "nano-mooncake/acceptance-artifacts/v1";

bool is_acceptance_run(const Path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / evidence::kRunManifest, ignored) ||
         std::filesystem::exists(folder / evidence::kRunIndex, ignored);
}

// An earlier run's folder is emptied; anything else is not ours to empty.
Result<void> make_folder(const Path& folder) {
  std::error_code error;
  const bool there = std::filesystem::exists(folder, error) && !std::filesystem::is_empty(folder, error);
  if (there && !is_acceptance_run(folder))
    return already_exists("{}: is there and no acceptance run; expected a folder to be made", folder.string());
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) return Failure(os_error("make", folder.string(), error.value()));
  return {};
}

Result<void> write_json(const Path& path, const Json& json) {
  return write_file_atomic(path, dump_json_pretty(json) + "\n");
}

// False: interrupted. What was complete by then is recorded.
Result<bool> run_all(const Settings& settings, const Path& folder, const StopSignal& stop) {
  const std::int64_t runs = settings.integer("runs");
  for (std::int64_t number = 1; number <= runs; ++number) {
    NMC_ASSIGN_OR_RETURN(SuiteOptions options, suite_options_of(settings));
    show_progress(options, settings);
    if (!settings.on("quiet")) fmt::print(stderr, "run {} of {}\n", number, runs);
    NMC_ASSIGN_OR_RETURN(const SuiteResult result, run_suite(options, stop));
    const Path report = folder / "reports" / fmt::format("run-{:03}.json", number);
    NMC_RETURN_IF_ERROR(file_report(result.report, report, folder / evidence::kRunIndex));
    if (result.interrupted) return false;
  }
  return true;
}

// Of every file of the run but itself.
Result<Json> artifacts_json(const Path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error)) names.push_back(entry->path().lexically_relative(folder).string());
  }
  if (error) return Failure(os_error("read", folder.string(), error.value()));
  std::ranges::sort(names);
  Json json = {{"schema", kManifestSchema}, {"files", Json::array()}};
  for (const std::string& name : names) {
    NMC_ASSIGN_OR_RETURN(const std::string text, read_file(folder / name, evidence::kZipBytesMax));
    json["files"].push_back({{"path", name}, {"bytes", text.size()}, {"sha256", sha256(text).hex()}});
  }
  return json;
}

Result<void> export_and_verify(const Settings& settings, const Path& folder) {
  NMC_ASSIGN_OR_RETURN(evidence::BundleInput input, bundle_input_of(settings, folder / evidence::kRunIndex,
                                                                    (folder / evidence::kRunBudget).string()));
  for (const char* name : {evidence::kRunAcceptance, evidence::kRunDiagnostics}) {
    NMC_ASSIGN_OR_RETURN(input.verdicts[name], read_file(folder / name, evidence::kBundleFileBytesMax));
  }
  NMC_ASSIGN_OR_RETURN(const auto files, evidence::make_bundle(input));
  NMC_ASSIGN_OR_RETURN(const std::string archive, evidence::write_zip(files));
  NMC_RETURN_IF_ERROR(evidence::write_bundle(files, folder / "bundle"));
  NMC_RETURN_IF_ERROR(write_file_atomic(folder / "bundle.zip", archive));
  const std::pair<const char*, const char*> checks[] = {{"bundle", evidence::kRunVerification},
                                                        {"bundle.zip", evidence::kRunZipVerification}};
  for (const auto& [bundle, report] : checks) {
    NMC_ASSIGN_OR_RETURN(const evidence::BundleVerification found, evidence::verify_bundle(folder / bundle));
    NMC_RETURN_IF_ERROR(write_json(folder / report, evidence::verification_json(found)));
    if (!found.is_verified())
      return internal_error("{} was rejected right after it was written", (folder / bundle).string());
  }
  return {};
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  const Path folder = settings.text("output-dir");
  NMC_ASSIGN_OR_RETURN(const evidence::Budget budget, acceptance_budget(settings));
  NMC_RETURN_IF_ERROR(make_folder(folder));
  NMC_RETURN_IF_ERROR(write_json(folder / evidence::kRunBudget, evidence::budget_json(budget)));
  NMC_ASSIGN_OR_RETURN(const bool complete, run_all(settings, folder, stop));
  if (!complete) return kExitInterrupted;
  const std::string index = (folder / evidence::kRunIndex).string();
  NMC_ASSIGN_OR_RETURN(const evidence::History history, evidence::load_history(index));
  NMC_ASSIGN_OR_RETURN(const evidence::Cohort cohort, evidence::cohort_of(history));
  NMC_ASSIGN_OR_RETURN(const evidence::Acceptance acceptance,
                       evidence::judge_acceptance(cohort, budget, acceptance_options(settings, index)));
  NMC_RETURN_IF_ERROR(write_json(folder / evidence::kRunAcceptance, evidence::acceptance_json(acceptance)));
  NMC_ASSIGN_OR_RETURN(const Json diagnostics, evidence::make_diagnostics(folder));
  NMC_RETURN_IF_ERROR(write_json(folder / evidence::kRunDiagnostics, diagnostics));
  if (settings.on("export-bundle")) NMC_RETURN_IF_ERROR(export_and_verify(settings, folder));
  NMC_ASSIGN_OR_RETURN(const Json artifacts, artifacts_json(folder));
  NMC_RETURN_IF_ERROR(write_json(folder / evidence::kRunManifest, artifacts));
  if (!settings.on("quiet"))
    NMC_RETURN_IF_ERROR(write_standard_output(render_report(acceptance_report(acceptance), Format::kTable)));
  for (const evidence::GateLine& gate : acceptance.gates) {  // quiet or not: an exit code alone explains nothing
    if (gate.applies && gate.verdict != evidence::Verdict::kPass && !gate.findings.empty())
      fmt::print(stderr, "{}: {}: {}\n", gate.name, verdict_name(gate.verdict), gate.findings[0]);
  }
  return exit_code_of(acceptance.verdict);
}

}  // namespace

Command acceptance_run_command() {
  std::vector<Setting> settings = {
      {.name = "output-dir",
       .placeholder = "DIR",
       .default_text = "results/acceptance_runs/latest",
       .help = "Everything goes there. An earlier acceptance run there is replaced; anything else there is an error.",
       .source = Source::kFlagOnly},
      {.name = "runs",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "2",
       .help = "Runs of the suite.",
       .low = 1,
       .high = 100,
       .source = Source::kFlagOnly}};
  for (Setting& setting : acceptance_settings()) settings.push_back(std::move(setting));
  settings.push_back({.name = "export-bundle",
                      .kind = Kind::kSwitch,
                      .default_text = "false",
                      .help = "Export an evidence bundle and its ZIP, and verify both.",
                      .source = Source::kFlagOnly});
  for (Setting& setting : suite_settings()) settings.push_back(std::move(setting));
  settings.push_back(quiet_setting());
  return {
      .name = "acceptance-run",
      .summary = "runs of its own, a verdict on them, and a bundle that a stranger can check",
      .purpose =
          "Runs the suite several times with a registry of its own, judges the runs by all gates, and writes reports, "
          "verdict (acceptance.json), diagnostics.json, and artifacts.json with the digest of every file; with "
          "--export-bundle also bundle/, bundle.zip and what verifying them found.",
      .settings = std::move(settings),
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence,
                     kExitInterrupted},
      .example = "nano-mooncake acceptance-run --output-dir results/acceptance_runs/latest --runs 2 --export-bundle",
      .run = run,
  };
}

}  // namespace nmc::cli
