// A bundle's manifest.json: what the bundle holds, by digests.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "evidence/registry.h"

namespace nmc::evidence {

struct FileIdentity {
  std::uint64_t bytes = 0;
  std::string sha256;

  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(std::string_view content);

// The one text there is for these files (without the manifest itself) and records, in the registry's order.
std::string manifest_text(const std::string& profile, const std::map<std::string, FileIdentity>& files,
                          std::span<const RegistryRecord> records);

struct Manifest {
  struct File {
    std::string path;
    FileIdentity identity;
  };
  struct Report {
    std::string run_id, path, report_digest;
  };
  std::string profile;
  std::vector<File> files;
  std::vector<std::string> records;  // record_digest of each
  std::vector<Report> reports;
  std::string digest;          // as it says
  bool digest_is_its = false;  // and it has that digest
};
// kInvalidArgument: it isn't one; `name` is for messages.
Result<Manifest> parse_manifest(std::string_view text, std::string_view name);

// parse_json() of a bundle's file, but kResourceExhausted beyond kBundleValuesMax.
Result<Json> parse_bundle_json(std::string_view text, std::string_view name);

}  // namespace nmc::evidence
