// Evidence bundles: runs, their registry, budget, workloads and verdicts in one folder or ZIP, with a manifest of
// digests, to be checked offline by a stranger. Layout and manifest are in docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
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

// Limits of what is exported and verified: kZipEntriesMax files, kZipBytesMax bytes in all, and
inline constexpr std::uint64_t kBundleFileBytesMax = kZipFileBytesMax;
// commas and opening brackets of a JSON file that is looked into, since values in memory take many times the bytes of
// their text. A report of this size has some 50,000 requests.
inline constexpr std::size_t kBundleValuesMax = 2'000'000;

struct BundleInput {
  Path index;
  std::string profile;
  std::string budget_text, budget_name;  // content, and where it is from, for messages
  std::string workloads_text;
  std::map<std::string, std::string> verdicts;  // file names to contents, for folder verdicts/
};

// All files of the bundle by path. Fails naming the first run whose report is missing or was changed, since a bundle
// with a hole can't be checked, or the first file beyond a limit. The same input gives the same bytes.
Result<std::map<std::string, std::string>> make_bundle(const BundleInput& input);

// Writes them beside `folder` and puts them there in one step; a bundle that is there stays whole until then and goes
// whole. kInvalidArgument: what is there is something else, or a bundle with files of somebody's own.
Result<void> write_bundle(const std::map<std::string, std::string>& files, const Path& folder);

// What is wrong with a bundle. `kind` is one of "missing", "extra", "stale" (whole, but another run's), "modified",
// "inconsistent", "reordered", "truncated", "path-escape", "link", "duplicate-name", "bomb", "malformed".
struct BundleVerification {
  std::vector<ContainerFault> findings;  // by path, then kind; on one line each
  std::uint64_t files = 0, runs = 0;
  std::string manifest_digest;  // "": there is none that can be read

  bool is_verified() const { return findings.empty(); }
};

// A folder or a ZIP. Needs nothing but the bundle; writes nothing; follows no link within. Memory: one file and the
// values of one JSON file at a time, within the limits above; time: each file is read at most a few times. kNotFound,
// kIo, kPermissionDenied: it can't be read at all. An archive that another process cuts meanwhile is SIGBUS.
Result<BundleVerification> verify_bundle(const Path& path);
// The same of an archive's bytes.
BundleVerification verify_archive(std::span<const std::byte> archive);
Json verification_json(const BundleVerification& verification);

// Of names in one bundle, by themselves and beside each other: those that leave the folder, that not every system can
// have, or that some system takes for one. Pure; for any bytes. Paths are as given: printable_name() is for messages.
std::vector<ContainerFault> name_faults(const std::vector<std::string>& names);

// On one line and not too long, whatever bytes it has.
std::string printable_name(std::string_view name);

}  // namespace nmc::evidence
