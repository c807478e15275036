// `nano-mooncake export-bundle`: all of the evidence in one folder, and one ZIP.
#include <fmt/core.h>

#include <algorithm>

#include "base/files.h"
#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "evidence/bundle.h"

namespace nmc::cli {
namespace {

Result<evidence::BundleInput> input_of(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(evidence::BundleInput input,
                       bundle_input_of(settings, settings.text("index"), settings.text("budget")));
  for (const std::string& path : settings.words("include")) {
    const std::string name = Path(path).filename().string();
    NMC_ASSIGN_OR_RETURN(std::string content, read_file(path, evidence::kBundleFileBytesMax));
    if (!input.verdicts.emplace(name, std::move(content)).second)
      return invalid_argument("--include: two files are called {}", name);
  }
  return input;
}

// An archive in the bundle's folder would be a file too many there.
Result<void> check_zip_place(const Settings& settings) {
  if (!settings.has("zip")) return {};
  std::error_code error;
  const Path folder = std::filesystem::weakly_canonical(std::filesystem::absolute(settings.text("output-dir")), error);
  const Path zip = std::filesystem::weakly_canonical(std::filesystem::absolute(settings.text("zip")), error);
  const Path below = zip.lexically_relative(folder.has_filename() ? folder : folder.parent_path());
  if (error || (!below.empty() && *below.begin() != ".."))
    return invalid_argument("--zip: {}: expected a file outside of --output-dir", settings.text("zip"));
  return {};
}

Result<int> run(const Settings& settings) {
  NMC_RETURN_IF_ERROR(check_zip_place(settings));
  NMC_ASSIGN_OR_RETURN(const evidence::BundleInput input, input_of(settings));
  NMC_ASSIGN_OR_RETURN(const auto files, evidence::make_bundle(input));
  std::string archive;
  if (settings.has("zip")) {
    NMC_ASSIGN_OR_RETURN(archive, evidence::write_zip(files));
  }
  NMC_RETURN_IF_ERROR(evidence::write_bundle(files, settings.text("output-dir")));
  if (settings.has("zip")) NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("zip"), archive));
  if (settings.on("quiet")) return kExitDone;
  const auto runs = std::ranges::count_if(files, [](const auto& file) { return file.first.starts_with("reports/"); });
  NMC_RETURN_IF_ERROR(
      write_standard_output(fmt::format("{}: {} files of {} runs\n{}", settings.text("output-dir"), files.size(), runs,
                                        settings.has("zip") ? settings.text("zip") + "\n" : "")));
  return kExitDone;
}

}  // namespace

Command export_bundle_command() {
  return {
      .name = "export-bundle",
      .summary = "all of the evidence in one folder and one ZIP, to be checked by a stranger",
      .purpose =
          "Reports, registry, budget, workloads and verdicts, and a manifest with the SHA-256 of every file and of "
          "every record. The same input gives the same bytes, the ZIP included. A run whose report is missing or was "
          "changed is an error.",
      .settings = with_common_settings(
          {index_setting("The registry of runs; all of them are exported."),
           {.name = "output-dir",
            .placeholder = "DIR",
            .default_text = "results/repro_bundle",
            .help = "The bundle. One that is there is replaced whole; anything else there is an error, "
                    "files added to it too.",
            .source = Source::kFlagOnly},
           profile_setting("pressure-profile"),
           budget_setting(),
           {.name = "workloads",
            .placeholder = "FILE",
            .default_text = "",
            .help = "Definitions of workloads. Default: the built-in ones.",
            .source = Source::kFlagOnly},
           {.name = "include",
            .kind = Kind::kWords,
            .placeholder = "FILE",
            .default_text = "",
            .help = "Verdicts and the like, for the bundle's folder verdicts/. May be given several times.",
            .source = Source::kFlagOnly},
           {.name = "zip",
            .placeholder = "FILE",
            .default_text = "",
            .help = "Write the bundle as a ZIP archive, too.",
            .source = Source::kFlagOnly}},
          false),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake export-bundle --output-dir results/repro_bundle --zip results/repro_bundle.zip",
      .run = run,
  };
}

}  // namespace nmc::cli
