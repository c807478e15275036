#include "evidence/bundle_manifest.h"

#include <algorithm>

#include "base/hash.h"
#include "evidence/bundle.h"
#include "evidence/canonical.h"
#include "evidence/json_reader.h"

namespace nmc::evidence {

FileIdentity identity_of(std::string_view content) { return {content.size(), sha256(content).hex()}; }

std::string manifest_text(const std::string& profile, const std::map<std::string, FileIdentity>& files,
                          std::span<const RegistryRecord> records) {
  Json json = {{"schema", kBundleSchema},
               {"profile", profile},
               {"files", Json::array()},
               {"records", Json::array()},
               {"reports", Json::array()}};
  for (const auto& [path, identity] : files)
    json["files"].push_back({{"path", path}, {"bytes", identity.bytes}, {"sha256", identity.sha256}});
  for (const RegistryRecord& record : records) {
    json["records"].push_back(record_json(record)["record_digest"]);
    json["reports"].push_back(
        {{"run_id", record.run_id}, {"path", record.path}, {"report_digest", record.report_digest}});
  }
  json["manifest_digest"] = canonical_digest(json).hex();
  return dump_json_pretty(json) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_bundle_json(text, name));
  std::optional<Error> fault;
  const JsonReader root(json, "", &fault);
  root.expect_schema(kBundleSchema);
  Manifest manifest{.profile = root.text("profile"),
                    .files = {},
                    .records = root.text_list("records"),
                    .reports = {},
                    .digest = root.hex_digest("manifest_digest")};
  for (const JsonReader& file : root.items("files"))
    manifest.files.push_back({file.text("path"), {file.count("bytes"), file.hex_digest("sha256")}});
  for (const JsonReader& report : root.items("reports"))
    manifest.reports.push_back({report.text("run_id"), report.text("path"), report.hex_digest("report_digest")});
  if (!fault && manifest.files.empty()) root.refuse("files", "at least one file");
  if (fault) return Failure(std::move(*fault).with_context(name));
  manifest.digest_is_its = canonical_digest(json, "manifest_digest").hex() == manifest.digest;
  return manifest;
}

Result<Json> parse_bundle_json(std::string_view text, std::string_view name) {
  const auto begins_value = [](char c) { return c == ',' || c == '[' || c == '{'; };
  if (std::ranges::count_if(text, begins_value) > static_cast<std::ptrdiff_t>(kBundleValuesMax))
    return resource_exhausted("{}: more than {} values", name, kBundleValuesMax);
  return parse_json(text, name);
}

}  // namespace nmc::evidence
