#include <algorithm>

#include "base/entropy.h"
#include "base/hash.h"
#include "evidence/budget.h"
#include "evidence/bundle.h"
#include "evidence/canonical.h"

namespace nmc::evidence {
namespace {

Path folder_of(const Path& index) { return index.has_parent_path() ? index.parent_path() : Path("."); }

Json manifest_json(const std::string& profile, const std::map<std::string, std::string>& files,
                   const std::vector<RegistryRecord>& records) {
  Json json = {{"schema", kBundleSchema},
               {"profile", profile},
               {"files", Json::array()},
               {"records", Json::array()},
               {"reports", Json::array()}};
  for (const auto& [path, content] : files)
    json["files"].push_back({{"path", path}, {"bytes", content.size()}, {"sha256", sha256(content).hex()}});
  for (const RegistryRecord& record : records) {
    json["records"].push_back(record_json(record)["record_digest"]);
    json["reports"].push_back(
        {{"run_id", record.run_id}, {"path", record.path}, {"report_digest", record.report_digest}});
  }
  json["manifest_digest"] = canonical_digest(json).hex();
  return json;
}

bool is_bundle(const Path& folder) {
  const auto text = read_file(folder / kBundleManifest, kBundleFileBytesMax);
  if (!text) return false;
  const auto json = parse_json(*text, kBundleManifest);
  return json && json->is_object() && json->contains("schema") && (*json)["schema"] == Json(kBundleSchema);
}

}  // namespace

Result<std::map<std::string, std::string>> make_bundle(const BundleInput& input) {
  NMC_ASSIGN_OR_RETURN(Registry registry, read_registry(input.index));
  if (registry.records.empty()) return invalid_argument("{}: no run in it", input.index.string());
  NMC_ASSIGN_OR_RETURN(const Json budget_json, parse_json(input.budget_text, input.budget_name));
  NMC_ASSIGN_OR_RETURN(const Budget budget, parse_budget(budget_json, input.budget_name));
  NMC_RETURN_IF_ERROR(rules_of(budget, input.profile));
  std::map<std::string, std::string> files = {{kBundleBudget, input.budget_text},
                                              {kBundleWorkloads, input.workloads_text}};
  for (const auto& [name, content] : input.verdicts) files["verdicts/" + name] = content;
  std::string index;
  for (RegistryRecord& record : registry.records) {
    const Path path = folder_of(input.index) / record.path;
    NMC_ASSIGN_OR_RETURN(std::string text, read_file(path, kBundleFileBytesMax));
    NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
    NMC_ASSIGN_OR_RETURN(const ExperimentReport report, parse_report(json, path.string()));
    if (record_of(report, record.path) != record)
      return corrupt("{}: it isn't the report of run {} that {} has a record of", path.string(), record.run_id,
                     input.index.string());
    record.path = "reports/" + record.run_id + ".json";
    files[record.path] = std::move(text);
    index += dump_json(record_json(record)) + '\n';
  }
  files[kBundleIndex] = std::move(index);
  std::vector<std::string> names;
  for (const auto& [path, content] : files) names.push_back(path);
  if (const auto faults = name_faults(names); !faults.empty())
    return invalid_argument("{}: {}", faults[0].path, faults[0].detail);
  files[kBundleManifest] = dump_json_pretty(manifest_json(input.profile, files, registry.records)) + "\n";
  return files;
}

Result<void> write_bundle(const std::map<std::string, std::string>& files, const Path& folder) {
  std::error_code error;
  const Path target = std::filesystem::absolute(folder).lexically_normal();
  const bool there = std::filesystem::exists(target, error) && !std::filesystem::is_empty(target, error);
  if (there && !is_bundle(target))
    return already_exists("{}: is there and no bundle of ours; expected a folder to be made", folder.string());
  const Path fresh = target.parent_path() / fmt::format(".{}.{:08x}", target.filename().string(),
                                                        static_cast<std::uint32_t>(machine_random()));
  const auto write_all = [&]() -> Result<void> {
    for (const auto& [path, content] : files) NMC_RETURN_IF_ERROR(write_file_atomic(fresh / path, content));
    std::filesystem::remove_all(target, error);
    std::filesystem::rename(fresh, target, error);
    if (error) return Failure(os_error("rename to", target.string(), error.value()));
    return {};
  };
  Result<void> written = write_all();
  if (!written) std::filesystem::remove_all(fresh, error);
  return written;
}

}  // namespace nmc::evidence
