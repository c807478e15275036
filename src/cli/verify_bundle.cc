// `nano-mooncake verify-bundle`: whether a bundle is whole and unchanged.
#include <fmt/core.h>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/verdict_report.h"
#include "evidence/bundle.h"

namespace nmc::cli {
namespace {

Result<int> run(const Settings& settings) {
  if (settings.operands().size() != 1)
    return invalid_argument("{} bundles, expected one folder or ZIP archive", settings.operands().size());
  const std::string& path = settings.operands()[0];
  NMC_ASSIGN_OR_RETURN(const evidence::BundleVerification verification, evidence::verify_bundle(path));
  NMC_RETURN_IF_ERROR(write_verdict(verification_report(verification, path), settings));
  return verification.is_verified() ? kExitDone : kExitJudgedFailed;
}

}  // namespace

Command verify_bundle_command() {
  return {
      .name = "verify-bundle",
      .summary = "whether an evidence bundle is whole and unchanged",
      .operands = "DIR|ZIP",
      .purpose =
          "Computes the digest of every file and record again and names what is missing, extra, stale, modified, "
          "inconsistent or reordered. Needs nothing but the bundle, no network, and writes nothing. Archives that "
          "are cut off, hold names that leave their folder, links, names twice, or anything that isn't stored as it "
          "is are refused by name.",
      .settings = with_verdict_settings({}),
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake verify-bundle results/repro_bundle.zip",
      .run = run,
  };
}

}  // namespace nmc::cli
