#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/entropy.h"
#include "evidence/budget.h"
#include "evidence/bundle.h"
#include "evidence/bundle_files.h"
#include "evidence/bundle_manifest.h"

namespace nmc::evidence {
namespace {

Path folder_of(const Path& index) { return index.has_parent_path() ? index.parent_path() : Path("."); }

Result<void> check_budget(const BundleInput& input) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_bundle_json(input.budget_text, input.budget_name));
  NMC_ASSIGN_OR_RETURN(const Budget budget, parse_budget(json, input.budget_name));
  NMC_RETURN_IF_ERROR(rules_of(budget, input.profile));
  return {};
}

// The text of the report that `record` is of.
Result<std::string> read_recorded(const RegistryRecord& record, const Path& index) {
  const Path path = folder_of(index) / record.path;
  NMC_ASSIGN_OR_RETURN(std::string text, read_file(path, kBundleFileBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_bundle_json(text, path.string()));
  NMC_ASSIGN_OR_RETURN(const ExperimentReport report, parse_report(json, path.string()));
  if (record_of(report, record.path) != record)
    return corrupt("{}: it isn't the report of run {} that {} has a record of", path.string(), record.run_id,
                   index.string());
  return text;
}

// A bundle that would be refused is none.
Result<void> check_limits(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names = {kBundleManifest};
  std::uint64_t bytes = 0;
  for (const auto& [path, content] : files) {
    names.push_back(path);
    bytes += content.size();
    if (content.size() > kBundleFileBytesMax)
      return invalid_argument("{}: {} bytes, expected at most {}", path, content.size(), kBundleFileBytesMax);
  }
  if (names.size() > kZipEntriesMax)
    return invalid_argument("{} files, expected at most {} in a bundle", names.size(), kZipEntriesMax);
  if (bytes > kZipBytesMax) return invalid_argument("{} bytes, expected at most {} in a bundle", bytes, kZipBytesMax);
  if (const auto faults = name_faults(names); !faults.empty())
    return invalid_argument("{}: {}", printable_name(faults[0].path), faults[0].detail);
  return {};
}

// Why what is at `folder` may not be replaced.
Result<void> check_replaceable(const Path& folder, const std::string& shown) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(folder, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  if (status.type() != std::filesystem::file_type::directory)
    return invalid_argument("{}: is there and no folder; expected a folder to be made", shown);
  if (std::filesystem::is_empty(folder, error)) return {};
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<BundleFiles> files, files_of_folder(folder));
  const std::optional<std::string> text = files->read(kBundleManifest);
  const auto manifest = text ? parse_manifest(*text, kBundleManifest) : Result<Manifest>(not_found("none"));
  if (!manifest) return invalid_argument("{}: is there and no bundle of ours; expected a folder to be made", shown);
  for (const std::string& name : files->names()) {
    if (name != kBundleManifest && std::ranges::count(manifest->files, name, &Manifest::File::path) == 0)
      return invalid_argument("{}: has {}, which isn't of the bundle there and would be lost; move it away", shown,
                              printable_name(name));
  }
  return {};
}

Result<void> rename_to(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return Failure(os_error("rename to", to.string()));
  return {};
}

// `fresh` becomes `target`; what was there is `fresh` then, or gone.
Result<void> put_in_place(const Path& fresh, const Path& target) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return {};
  std::error_code ignored;
  if (!std::filesystem::exists(target, ignored)) return rename_to(fresh, target);
  // A file system that can't exchange: for a moment there is none, but never half of one.
  const Path old = fresh.string() + ".old";
  NMC_RETURN_IF_ERROR(rename_to(target, old));
  Result<void> renamed = rename_to(fresh, target);
  if (!renamed) {
    std::filesystem::rename(old, target, ignored);
    return renamed;
  }
  std::filesystem::remove_all(old, ignored);
  return {};
}

// So that the new name lasts; some file systems can't, and say so by an error that doesn't matter here.
void sync_folder(const Path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

}  // namespace

Result<std::map<std::string, std::string>> make_bundle(const BundleInput& input) {
  NMC_ASSIGN_OR_RETURN(Registry registry, read_registry(input.index));
  if (registry.records.empty()) return invalid_argument("{}: no run in it", input.index.string());
  NMC_RETURN_IF_ERROR(check_budget(input));
  std::map<std::string, std::string> files = {{kBundleBudget, input.budget_text},
                                              {kBundleWorkloads, input.workloads_text}};
  for (const auto& [name, content] : input.verdicts) files["verdicts/" + name] = content;
  std::string index;
  for (RegistryRecord& record : registry.records) {
    NMC_ASSIGN_OR_RETURN(std::string text, read_recorded(record, input.index));
    record.path = "reports/" + record.run_id + ".json";
    files[record.path] = std::move(text);
    index += dump_json(record_json(record)) + '\n';
  }
  files[kBundleIndex] = std::move(index);
  NMC_RETURN_IF_ERROR(check_limits(files));
  std::map<std::string, FileIdentity> identities;
  for (const auto& [path, content] : files) identities.emplace(path, identity_of(content));
  files[kBundleManifest] = manifest_text(input.profile, identities, registry.records);
  return files;
}

Result<void> write_bundle(const std::map<std::string, std::string>& files, const Path& folder) {
  std::error_code error;
  Path target = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), error);
  if (!target.has_filename()) target = target.parent_path();  // "results/bundle/"
  if (folder.empty() || error || !target.has_filename())
    return invalid_argument("\"{}\": expected a folder to be made", folder.string());
  NMC_RETURN_IF_ERROR(check_replaceable(target, folder.string()));
  const Path fresh = target.parent_path() / fmt::format(".{}.{:08x}", target.filename().string(),
                                                        static_cast<std::uint32_t>(machine_random()));
  const auto write_all = [&]() -> Result<void> {
    for (const auto& [path, content] : files) NMC_RETURN_IF_ERROR(write_file_atomic(fresh / path, content));
    return put_in_place(fresh, target);
  };
  Result<void> written = write_all();
  std::filesystem::remove_all(fresh, error);
  if (written) sync_folder(target.parent_path());
  return written;
}

}  // namespace nmc::evidence
