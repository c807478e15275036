#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "evidence/budget.h"
#include "evidence/bundle.h"
#include "evidence/bundle_files.h"
#include "evidence/bundle_manifest.h"

namespace nmc::evidence {
namespace {

Result<ExperimentReport> report_of(std::string_view text, const std::string& path) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_bundle_json(text, path));
  return parse_report(json, path);
}

// Each file's digest is held against the manifest first. What is intact by that is then looked into: a record against
// its report, records against the manifest's. In the end the manifest has to be the text that an export of just these
// files and records makes, so that whatever no check has thought of is found, too.
class Verifier {
 public:
  explicit Verifier(BundleFiles& files) : files_(files) {}

  BundleVerification run() {
    present_.insert(files_.names().begin(), files_.names().end());
    result_.files = present_.size();
    found_all(name_faults(files_.names()));
    // Of what couldn't be followed to its end it can't be told what is missing.
    if (files_.complete() && read_manifest()) {
      check_listed();
      check_files();
      check_extra();
      check_registry();
      check_budget();
      if (result_.findings.empty() && files_.faults().empty()) check_text();
    }
    found_all(files_.faults());
    NMC_ASSERT(files_.complete() || !result_.findings.empty(), "names are missing, and nothing says why");
    std::ranges::sort(result_.findings);
    const auto twice = std::ranges::unique(result_.findings);
    result_.findings.erase(twice.begin(), twice.end());
    return std::move(result_);
  }

 private:
  void found(std::string kind, std::string_view path, std::string detail) {
    result_.findings.push_back({std::move(kind), printable_name(path), std::move(detail)});
  }
  void found_all(const std::vector<ContainerFault>& faults) {
    for (const ContainerFault& fault : faults) found(fault.kind, fault.path, fault.detail);
  }

  bool read_manifest() {
    if (!present_.contains(kBundleManifest)) {
      found("missing", kBundleManifest, "a bundle has a manifest");
      return false;
    }
    std::optional<std::string> text = files_.read(kBundleManifest);
    if (!text) return false;  // its fault says why
    Result<Manifest> manifest = parse_manifest(*text, kBundleManifest);
    if (!manifest) {
      found(manifest.error().code == ErrorCode::kResourceExhausted ? "bomb" : "malformed", kBundleManifest,
            manifest.error().message);
      return false;
    }
    manifest_ = std::move(*manifest);
    text_ = std::move(*text);
    if (!manifest_.digest_is_its) found("modified", kBundleManifest, "its content hasn't the digest that it says");
    result_.manifest_digest = manifest_.digest;
    return true;
  }

  void check_listed() {
    std::vector<std::string> names = {kBundleManifest};
    for (const Manifest::File& file : manifest_.files) {
      if (file.path == kBundleManifest)
        found("malformed", kBundleManifest, "it lists itself");
      else if (!listed_.emplace(file.path, &file.identity).second)
        found("duplicate-name", file.path, "the manifest lists it twice");
    }
    for (const auto& [path, identity] : listed_) names.push_back(path);
    found_all(name_faults(names));
    for (const Manifest::Report& report : manifest_.reports) reports_.emplace(report.path, &report);
    for (const char* path : {kBundleIndex, kBundleBudget, kBundleWorkloads}) {
      if (!listed_.contains(path)) found("missing", path, "a bundle has one, and the manifest doesn't list it");
    }
  }

  void check_files() {
    for (const auto& [path, identity] : listed_) {
      if (!present_.contains(path)) {
        found("missing", path, "the manifest lists it");
        continue;
      }
      const std::optional<std::string> text = files_.read(path);
      if (!text) continue;
      if (identity_of(*text) == *identity)
        intact_.insert(path);
      else if (path != kBundleIndex)  // of which check_registry() can say more
        found_other(path, *text);
    }
  }

  // Content that isn't what the manifest says: that of another run, or changed.
  void found_other(const std::string& path, std::string_view text) {
    if (const auto listed = reports_.find(path); listed != reports_.end()) {
      const Result<ExperimentReport> report = report_of(text, path);
      if (report && report->digest != listed->second->report_digest)
        return found("stale", path,
                     fmt::format("a whole report of run {}, but not the one that the manifest is of", report->run_id));
    }
    found("modified", path, "its content hasn't the digest that the manifest says");
  }

  void check_extra() {
    for (const std::string& name : present_) {
      if (name != kBundleManifest && !listed_.contains(name)) found("extra", name, "the manifest doesn't list it");
    }
  }

  void check_registry() {
    const std::optional<std::string> text = files_.read(kBundleIndex);
    if (!text) return;  // said already
    const std::size_t before = result_.findings.size();
    std::size_t number = 0;
    for (std::string_view rest = *text; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      if (++number > kZipEntriesMax) return found("bomb", kBundleIndex, "more records than a bundle can have reports");
      if (end == std::string_view::npos) {
        found("truncated", kBundleIndex, fmt::format("line {} has no end", number));
        break;
      }
      check_line(rest.substr(0, end), number);
      rest.remove_prefix(end + 1);
    }
    result_.runs = records_.size();
    check_order(result_.findings.size() != before);
  }

  void check_line(std::string_view line, std::size_t number) {
    const std::string name = fmt::format("{}:{}", kBundleIndex, number);
    const Result<RegistryRecord> record =
        line.size() > kRecordBytesMax ? corrupt("{}: {} bytes", name, line.size()) : parse_record(line, name);
    if (!record)
      return found(intact_.contains(kBundleIndex) ? "inconsistent" : "modified", kBundleIndex, record.error().message);
    records_.push_back(*record);
    if (!ids_.insert(record->run_id).second || !paths_.insert(record->path).second)
      return found("inconsistent", kBundleIndex,
                   fmt::format("line {}: run {} or its report is there twice", number, record->run_id));
    check_record(*record, number);
  }

  void check_record(const RegistryRecord& record, std::size_t number) {
    const auto listed = reports_.find(record.path);
    if (listed == reports_.end() || listed->second->run_id != record.run_id ||
        listed->second->report_digest != record.report_digest)
      return other_runs_.push_back(fmt::format("line {}: the manifest has no such run as {}", number, record.run_id));
    if (!intact_.contains(record.path)) {
      if (!listed_.contains(record.path)) found("missing", record.path, "the manifest lists its run, but not its file");
      return;
    }
    const std::optional<std::string> text = files_.read(record.path);
    if (!text) return;
    const Result<ExperimentReport> report = report_of(*text, record.path);
    if (!report)
      found(report.error().code == ErrorCode::kResourceExhausted ? "bomb" : "inconsistent", record.path,
            report.error().message);
    else if (record_of(*report, record.path) != record)
      found("inconsistent", kBundleIndex, fmt::format("line {}: its record isn't that of {}", number, record.path));
  }

  // `has_fault`: what is wrong with the registry is said, unless it is its order.
  void check_order(bool has_fault) {
    const bool intact = intact_.contains(kBundleIndex);
    std::vector<std::string> digests;
    for (const RegistryRecord& record : records_) digests.push_back(record_json(record)["record_digest"]);
    const bool equal = digests == manifest_.records;
    std::vector<std::string> expected = manifest_.records, given = std::move(digests);
    std::ranges::sort(expected);
    std::ranges::sort(given);
    if (!equal && given == expected)
      return found("reordered", kBundleIndex, "its records aren't in the manifest's order");
    if (has_fault || (equal && intact && other_runs_.empty())) return;
    if (equal && !intact)
      return found("modified", kBundleIndex, "its content hasn't the digest that the manifest says");
    const std::string which = other_runs_.empty() ? fmt::format("{} records, the manifest has {}, or others",
                                                                records_.size(), manifest_.records.size())
                                                  : other_runs_.front();
    if (intact) return found("inconsistent", kBundleIndex, which);
    found("stale", kBundleIndex, "a whole registry, but not the one that the manifest is of: " + which);
  }

  void check_budget() {
    if (!intact_.contains(kBundleBudget)) return;
    const std::optional<std::string> text = files_.read(kBundleBudget);
    if (!text) return;
    const Result<Json> json = parse_bundle_json(*text, kBundleBudget);
    const auto budget = json ? parse_budget(*json, kBundleBudget) : Result<Budget>(Failure(json.error()));
    if (!budget) return found("inconsistent", kBundleBudget, budget.error().message);
    if (const auto rules = rules_of(*budget, manifest_.profile); !rules)
      found("inconsistent", kBundleBudget, rules.error().message);
  }

  void check_text() {
    std::map<std::string, FileIdentity> files;
    for (const auto& [path, identity] : listed_) files.emplace(path, *identity);
    if (manifest_text(manifest_.profile, files, records_) != text_)
      found("modified", kBundleManifest, "members, their order or their layout aren't as an export writes them");
  }

  static constexpr std::size_t kRecordBytesMax = 64 * 1024;

  BundleFiles& files_;
  Manifest manifest_;
  std::string text_;               // the manifest's
  std::set<std::string> present_;  // all there is
  std::map<std::string, const FileIdentity*, std::less<>> listed_;
  std::map<std::string, const Manifest::Report*, std::less<>> reports_;  // the manifest's, by path
  std::set<std::string, std::less<>> intact_;                            // listed, and as the manifest says
  std::vector<RegistryRecord> records_;
  std::set<std::string> ids_, paths_;    // of records
  std::vector<std::string> other_runs_;  // records that the manifest doesn't have
  BundleVerification result_;
};

BundleVerification refused(const char* kind, std::string detail) {
  BundleVerification verification;
  verification.findings.push_back({kind, "", std::move(detail)});
  return verification;
}

}  // namespace

BundleVerification verify_archive(std::span<const std::byte> archive) {
  if (archive.empty()) return refused("truncated", "an empty file, expected a ZIP archive");
  if (archive.size() > kZipBytesMax)
    return refused("bomb", fmt::format("{} bytes, expected at most {}", archive.size(), kZipBytesMax));
  const std::unique_ptr<BundleFiles> files = files_of_archive(archive);
  return Verifier(*files).run();
}

Result<BundleVerification> verify_bundle(const Path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    NMC_ASSIGN_OR_RETURN(const std::unique_ptr<BundleFiles> files, files_of_folder(path));
    return Verifier(*files).run();
  }
  NMC_ASSIGN_OR_RETURN(const std::uint64_t size, nmc::file_size(path));
  if (size == 0) return verify_archive({});  // which can't be mapped
  NMC_ASSIGN_OR_RETURN(const Mapping archive, map_file(path));
  return verify_archive(archive.bytes());
}

Json verification_json(const BundleVerification& verification) {
  Json json = {
      {"schema", "nano-mooncake/bundle-verification/v1"},
      {"verdict", verification.is_verified() ? "verified" : "rejected"},
      {"files", verification.files},
      {"runs", verification.runs},
      {"manifest_digest", verification.manifest_digest.empty() ? Json(nullptr) : Json(verification.manifest_digest)},
      {"findings", Json::array()}};
  for (const ContainerFault& fault : verification.findings)
    json["findings"].push_back({{"kind", fault.kind}, {"path", fault.path}, {"detail", fault.detail}});
  return json;
}

}  // namespace nmc::evidence
