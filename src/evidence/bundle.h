// Evidence bundles: runs, their registry, budget, workloads and verdicts in one folder or ZIP, with a manifest of
// digests, to be checked offline by a stranger. Layout and manifest are in docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "evidence/registry.h"
#include "evidence/zip.h"

namespace nmc::evidence {

inline constexpr std::string_view kBundleSchema = "nano-mooncake/bundle/v1";
inline constexpr const char* kBundleManifest = "manifest.json";
inline constexpr const char* kBundleIndex = "index.jsonl";
inline constexpr const char* kBundleBudget = "pressure_budgets.json";
inline constexpr const char* kBundleWorkloads = "workload_bundles.json";
inline constexpr std::uint64_t kBundleFileBytesMax = std::uint64_t{256} << 20;

struct BundleInput {
  Path index;
  std::string profile;
  std::string budget_text, budget_name;  // content, and where it is from, for messages
  std::string workloads_text;
  std::map<std::string, std::string> verdicts;  // file names to contents, for folder verdicts/
};

// All files of the bundle by path. Fails naming the first run whose report is missing or was changed: a bundle with a
// hole would be one that can't be checked. The same input gives the same bytes.
Result<std::map<std::string, std::string>> make_bundle(const BundleInput& input);

// Writes them to `folder`, whole or not at all. What is there is replaced if it is a bundle; kAlreadyExists: it is
// something else.
Result<void> write_bundle(const std::map<std::string, std::string>& files, const Path& folder);

// What is wrong with a bundle. `kind` is one of "missing", "extra", "stale" (whole, but another run's), "modified",
// "inconsistent", "reordered", "truncated", "path-escape", "link", "duplicate-name", "bomb", "malformed".
struct BundleVerification {
  std::vector<ContainerFault> findings;  // by path, then kind
  std::uint64_t files = 0, runs = 0;
  std::string manifest_digest;  // "": there is none that can be read

  bool is_verified() const { return findings.empty(); }
};

// A folder or a ZIP. Needs nothing but the bundle; writes nothing; follows no link; never holds more than one file of
// at most kBundleFileBytesMax. kNotFound, kIo: it can't be read at all.
Result<BundleVerification> verify_bundle(const Path& path);
Json verification_json(const BundleVerification& verification);

// Of names in one bundle, by themselves and beside each other: those that leave the folder, or that some system takes
// for one. Pure; for any bytes.
std::vector<ContainerFault> name_faults(const std::vector<std::string>& names);

// On one line, whatever bytes it has.
std::string printable_name(std::string_view name);

}  // namespace nmc::evidence
