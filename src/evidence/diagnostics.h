// What a finished acceptance run needs to be understood: for each gate that didn't pass what it found, where the time
// went and which command tells or supplies more. Made from the run's own files; the verdict is read, never judged
// again.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"

namespace nmc::evidence {

// Files of an acceptance run, from its folder.
inline constexpr const char* kRunIndex = "index.jsonl";
inline constexpr const char* kRunAcceptance = "acceptance.json";
inline constexpr const char* kRunBudget = "pressure_budgets.json";
inline constexpr const char* kRunDiagnostics = "diagnostics.json";
inline constexpr const char* kRunManifest = "artifacts.json";
inline constexpr const char* kRunVerification = "verification.json";
inline constexpr const char* kRunZipVerification = "verification_zip.json";

// Of the run in `folder`. kNotFound or kCorrupt name the file that isn't as it should be.
Result<Json> make_diagnostics(const Path& folder);

// The verdict in a few lines of Markdown, from an acceptance run's folder or from a bundle that holds its verdict.
struct EvidenceSummary {
  Json json;
  std::string markdown;
  std::string verdict;  // "accepted", "blocked", "insufficient_evidence"
};
Result<EvidenceSummary> summarize_evidence(const Path& folder);

}  // namespace nmc::evidence
