#include <algorithm>
#include <functional>
#include <set>

#include "base/hash.h"
#include "evidence/budget.h"
#include "evidence/bundle.h"
#include "evidence/canonical.h"
#include "evidence/json_reader.h"

namespace nmc::evidence {
namespace {

// A bundle's files, wherever they are.
class BundleFiles {
 public:
  virtual ~BundleFiles() = default;
  virtual std::vector<std::string> names() const = 0;  // as they are, in any order, maybe one twice
  // Nothing: it isn't there or can't be read as a file, which is among the faults then.
  virtual std::optional<std::string> read(const std::string& name) = 0;
  std::vector<ContainerFault> faults;
};

class ZipFiles final : public BundleFiles {
 public:
  explicit ZipFiles(Mapping archive) : archive_(std::move(archive)), content_(read_zip(archive_.bytes())) {
    faults = std::move(content_.faults);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const ZipEntry& entry : content_.entries) names.push_back(entry.name);
    return names;
  }
  std::optional<std::string> read(const std::string& name) override {
    const auto found = std::ranges::find(content_.entries, name, &ZipEntry::name);
    if (found == content_.entries.end()) return std::nullopt;
    const bool faulty = std::ranges::count(faults, name, &ContainerFault::path) > 0;
    if (faulty) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
  }

 private:
  const Mapping archive_;
  ZipContent content_;
};

class FolderFiles final : public BundleFiles {
 public:
  static Result<std::unique_ptr<FolderFiles>> open(const Path& folder) {
    auto files = std::unique_ptr<FolderFiles>(new FolderFiles(folder));
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      files->add(entry->path().lexically_relative(folder).string(), entry->symlink_status());
      if (files->names_.size() > kZipEntriesMax) {
        files->faults.push_back({"malformed", "", fmt::format("more than {} files", kZipEntriesMax)});
        break;
      }
    }
    if (error) return Failure(os_error("read", folder.string(), error.value()));
    return files;
  }
  std::vector<std::string> names() const override { return names_; }
  std::optional<std::string> read(const std::string& name) override {
    if (std::ranges::count(regular_, name) == 0) return std::nullopt;
    auto text = read_file(folder_ / name, kBundleFileBytesMax);
    if (text) return std::move(*text);
    faults.push_back({"malformed", name, text.error().message});
    return std::nullopt;
  }

 private:
  explicit FolderFiles(Path folder) : folder_(std::move(folder)) {}

  void add(std::string name, std::filesystem::file_status status) {
    using std::filesystem::file_type;
    if (status.type() == file_type::directory) return;
    names_.push_back(name);
    if (status.type() == file_type::regular)
      regular_.push_back(std::move(name));
    else if (status.type() == file_type::symlink)
      faults.push_back({"link", std::move(name), "a link, expected a file"});
    else
      faults.push_back({"malformed", std::move(name), "neither a file nor a folder"});
  }

  const Path folder_;
  std::vector<std::string> names_, regular_;
};

struct ManifestFile {
  std::string path, sha256;
  std::uint64_t bytes = 0;
};
struct ManifestReport {
  std::string run_id, path, report_digest;
};
struct Manifest {
  std::string profile, digest;
  std::vector<ManifestFile> files;
  std::vector<std::string> records;
  std::vector<ManifestReport> reports;
};

class Verifier {
 public:
  explicit Verifier(BundleFiles& files) : files_(files) {}

  BundleVerification run() {
    const std::vector<std::string> names = files_.names();
    for (ContainerFault& fault : name_faults(names)) found(std::move(fault));
    present_.insert(names.begin(), names.end());
    result_.files = present_.size();
    if (read_manifest()) {
      check_files();
      check_extra();
      check_registry();
      check_budget();
    }
    for (ContainerFault& fault : files_.faults) found({fault.kind, printable_name(fault.path), fault.detail});
    const auto order = [](const ContainerFault& fault) { return std::tie(fault.path, fault.kind, fault.detail); };
    std::ranges::sort(result_.findings, {}, order);
    return std::move(result_);
  }

 private:
  void found(ContainerFault fault) { result_.findings.push_back(std::move(fault)); }
  void found(const char* kind, const std::string& path, std::string detail) {
    found({kind, printable_name(path), std::move(detail)});
  }

  bool read_manifest() {
    if (!present_.contains(kBundleManifest)) {
      found("missing", kBundleManifest, "a bundle has a manifest");
      return false;
    }
    const std::optional<std::string> text = files_.read(kBundleManifest);
    if (!text) return false;  // said already
    const Result<Json> json = parse_json(*text, kBundleManifest);
    if (!json) {
      found("malformed", kBundleManifest, json.error().message);
      return false;
    }
    std::optional<Error> fault;
    const JsonReader root(*json, "", &fault);
    if (root.text("schema") != kBundleSchema && !fault)
      fault = Error{ErrorCode::kInvalidArgument, fmt::format("`schema`: expected \"{}\"", kBundleSchema)};
    read_manifest_members(root);
    if (!fault && manifest_.files.empty()) root.refuse("files", "at least one file");
    if (fault) {
      found("malformed", kBundleManifest, fault->message);
      return false;
    }
    if (canonical_digest(*json, "manifest_digest").hex() != manifest_.digest)
      found("modified", kBundleManifest, "its content doesn't have the digest that it says");
    result_.manifest_digest = manifest_.digest;
    return true;
  }

  void read_manifest_members(const JsonReader& root) {
    manifest_.profile = root.text("profile");
    manifest_.digest = root.hex_digest("manifest_digest");
    for (const JsonReader& file : root.items("files"))
      manifest_.files.push_back({file.text("path"), file.hex_digest("sha256"), file.count("bytes")});
    manifest_.records = root.text_list("records");
    for (const JsonReader& report : root.items("reports"))
      manifest_.reports.push_back({report.text("run_id"), report.text("path"), report.hex_digest("report_digest")});
  }

  void check_files() {
    std::vector<std::string> names = {kBundleManifest};
    for (const ManifestFile& file : manifest_.files) {
      names.push_back(file.path);
      if (file.path == kBundleManifest) {
        found("malformed", kBundleManifest, "it lists itself");
        continue;
      }
      if (!present_.contains(file.path)) {
        found("missing", file.path, "the manifest lists it");
        continue;
      }
      const std::optional<std::string> text = files_.read(file.path);
      if (text && (text->size() != file.bytes || sha256(*text).hex() != file.sha256)) found_other(file.path, *text);
    }
    for (ContainerFault& fault : name_faults(names)) {
      if (fault.path != kBundleManifest) found(std::move(fault));
    }
  }

  // Content that isn't what the manifest says: that of another run, or changed.
  void found_other(const std::string& path, const std::string& text) {
    const auto listed = std::ranges::find(manifest_.reports, path, &ManifestReport::path);
    if (listed != manifest_.reports.end()) {
      const Result<Json> json = parse_json(text, path);
      const auto report = json ? parse_report(*json, path) : Result<ExperimentReport>(Failure(json.error()));
      if (report && report->digest != listed->report_digest)
        return found("stale", path,
                     fmt::format("a whole report of run {}, but not the one that the manifest is of", report->run_id));
    }
    found("modified", path, "its content doesn't have the digest that the manifest says");
  }

  void check_extra() {
    std::set<std::string> listed = {kBundleManifest};
    for (const ManifestFile& file : manifest_.files) listed.insert(file.path);
    for (const std::string& name : present_) {
      if (!listed.contains(name)) found("extra", name, "the manifest doesn't list it");
    }
  }

  void check_registry() {
    const std::optional<std::string> text = files_.read(kBundleIndex);
    if (!text) {
      if (!present_.contains(kBundleIndex)) found("missing", kBundleIndex, "a bundle has a registry");
      return;
    }
    std::vector<std::string> digests;
    std::size_t number = 0;
    for (std::string_view rest = *text; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      ++number;
      if (end == std::string_view::npos) {
        found("truncated", kBundleIndex, fmt::format("line {} has no end", number));
        break;
      }
      check_record(rest.substr(0, end), number, digests);
      rest.remove_prefix(end + 1);
    }
    check_order(digests);
    if (manifest_.reports.size() != digests.size())
      found("inconsistent", kBundleManifest,
            fmt::format("it lists {} reports, the registry has {} records", manifest_.reports.size(), digests.size()));
  }

  void check_record(std::string_view line, std::size_t number, std::vector<std::string>& digests) {
    const std::string name = fmt::format("{}:{}", kBundleIndex, number);
    const Result<RegistryRecord> record = parse_record(line, name);
    if (!record) return found("inconsistent", kBundleIndex, record.error().message);
    ++result_.runs;
    digests.push_back(record_json(*record)["record_digest"]);
    const auto listed = std::ranges::find(manifest_.reports, record->run_id, &ManifestReport::run_id);
    if (listed == manifest_.reports.end() || listed->path != record->path ||
        listed->report_digest != record->report_digest)
      found("inconsistent", kBundleIndex,
            fmt::format("line {}: run {} isn't as the manifest lists it", number, record->run_id));
    const std::optional<std::string> text = files_.read(record->path);
    if (!text) {
      if (!present_.contains(record->path))
        found("missing", record->path, fmt::format("the record of run {} names it", record->run_id));
      return;
    }
    const Result<Json> json = parse_json(*text, record->path);
    const auto report = json ? parse_report(*json, record->path) : Result<ExperimentReport>(Failure(json.error()));
    if (!report) return found("inconsistent", record->path, report.error().message);
    if (record_of(*report, record->path) != *record)
      found("inconsistent", kBundleIndex, fmt::format("line {}: its record isn't that of {}", number, record->path));
  }

  void check_order(const std::vector<std::string>& digests) {
    if (digests == manifest_.records) return;
    if (std::ranges::is_permutation(digests, manifest_.records))
      found("reordered", kBundleIndex, "its records aren't in the order of the manifest");
    else
      found("inconsistent", kBundleIndex, "its records aren't those that the manifest lists");
  }

  void check_budget() {
    const std::optional<std::string> text = files_.read(kBundleBudget);
    if (!text) return;  // the manifest lists it, or else it isn't a budget's bundle
    const Result<Json> json = parse_json(*text, kBundleBudget);
    const auto budget = json ? parse_budget(*json, kBundleBudget) : Result<Budget>(Failure(json.error()));
    if (!budget) return found("inconsistent", kBundleBudget, budget.error().message);
    if (const auto rules = rules_of(*budget, manifest_.profile); !rules)
      found("inconsistent", kBundleBudget, rules.error().message);
  }

  BundleFiles& files_;
  Manifest manifest_;
  std::set<std::string> present_;
  BundleVerification result_;
};

}  // namespace

Result<BundleVerification> verify_bundle(const Path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    NMC_ASSIGN_OR_RETURN(const std::unique_ptr<FolderFiles> files, FolderFiles::open(path));
    return Verifier(*files).run();
  }
  NMC_ASSIGN_OR_RETURN(const std::uint64_t size, nmc::file_size(path));
  if (size == 0 || size > kZipBytesMax) {
    const std::string detail = fmt::format("{} bytes, expected a ZIP archive of at most 4 GiB", size);
    return BundleVerification{.findings = {{size == 0 ? "truncated" : "malformed", "", detail}}, .manifest_digest = ""};
  }
  NMC_ASSIGN_OR_RETURN(Mapping archive, map_file(path));
  ZipFiles files(std::move(archive));
  return Verifier(files).run();
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
