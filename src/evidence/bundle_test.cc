#include "evidence/bundle.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "base/hash.h"
#include "evidence/bundle_manifest.h"
#include "evidence/canonical.h"
#include "evidence/test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Files = std::map<std::string, std::string>;

constexpr const char* kBudgetText =
    R"({"schema": "nano-mooncake/pressure-budgets/v1", "profiles": {"smoke": [{"id": "no-leaks",
        "metric": "leaked_handles", "statistic": "max", "selector": {}, "direction": "at_most", "limit": 0,
        "min_samples": 1}]}})";

// "KIND PATH" of each finding.
std::vector<std::string> lines_of(const BundleVerification& verification) {
  std::vector<std::string> lines;
  for (const ContainerFault& fault : verification.findings) lines.push_back(fault.kind + " " + fault.path);
  return lines;
}
std::vector<std::string> findings(const Files& files) { return lines_of(verify_archive(as_bytes(*write_zip(files)))); }

class BundleTest : public ::testing::Test {
 protected:
  BundleTest() {
    for (int number = 1; number <= 3; ++number) add(number);
    bundle = *make_bundle(input());
  }

  void add(int number) {
    const CaseRow row = make_case({"w", "monolithic", "none", "1", "cold", "none"}, {1.5 * number});
    const ExperimentReport report = make_report(number, {row});
    const std::string path = fmt::format("somewhere/{}.json", number);
    ASSERT_TRUE(write_file_atomic(folder.path() / path, dump_json(report_json(report))));
    ASSERT_TRUE(append_record(index(), record_of(report, path)));
  }
  Path index() const { return folder.path() / "index.jsonl"; }
  BundleInput input() const {
    return {.index = index(),
            .profile = "smoke",
            .budget_text = kBudgetText,
            .budget_name = "budgets.json",
            .workloads_text = "{}\n",
            .verdicts = {{"acceptance.json", "{\"verdict\": \"accepted\"}\n"}}};
  }
  static std::string report_path(int number) { return fmt::format("reports/{}.json", make_report(number, {}).run_id); }

  // The records of a bundle as they stand in its registry.
  static std::vector<RegistryRecord> records_in(const Files& files) {
    std::vector<RegistryRecord> records;
    const std::string& text = files.at(kBundleIndex);
    for (std::size_t at = 0, stop; (stop = text.find('\n', at)) != std::string::npos; at = stop + 1)
      records.push_back(*parse_record(std::string_view(text).substr(at, stop - at), "a line"));
    return records;
  }
  static std::string registry_of(const std::vector<RegistryRecord>& records) {
    std::string text;
    for (const RegistryRecord& record : records) text += dump_json(record_json(record)) + "\n";
    return text;
  }
  // With a manifest that is right of these files, as somebody would make it who knows the format.
  static Files resealed(Files files) {
    files.erase(kBundleManifest);
    std::map<std::string, FileIdentity> identities;
    for (const auto& [path, content] : files) identities.emplace(path, identity_of(content));
    files[kBundleManifest] = manifest_text("smoke", identities, records_in(files));
    return files;
  }
  static Files with(Files files, const std::string& path, std::string content) {
    files[path] = std::move(content);
    return files;
  }
  static Files without(Files files, const std::string& path) {
    files.erase(path);
    return files;
  }

  const TemporaryFolder folder = *TemporaryFolder::create();
  Files bundle;
};

TEST_F(BundleTest, IsVerifiedAsItWasMade) {
  const BundleVerification verification = verify_archive(as_bytes(*write_zip(bundle)));
  EXPECT_THAT(lines_of(verification), ElementsAre());
  EXPECT_EQ(verification.files, 8u);
  EXPECT_EQ(verification.runs, 3u);
  ASSERT_TRUE(write_bundle(bundle, folder.path() / "out"));
  EXPECT_THAT(lines_of(*verify_bundle(folder.path() / "out")), ElementsAre());
  EXPECT_EQ(resealed(bundle), bundle);
}

TEST_F(BundleTest, DependsOnItsInputAlone) {
  EXPECT_EQ(*make_bundle(input()), bundle);
  for (const auto& [path, content] : bundle) EXPECT_THAT(content, Not(HasSubstr(folder.path().string()))) << path;
}

TEST_F(BundleTest, HasNoHoles) {
  std::filesystem::rename(folder.path() / "somewhere/2.json", folder.path() / "kept.json");
  EXPECT_THAT(make_bundle(input()).error().message, HasSubstr("somewhere/2.json"));
  std::filesystem::copy_file(folder.path() / "somewhere/3.json", folder.path() / "somewhere/2.json");
  EXPECT_THAT(make_bundle(input()).error().message, HasSubstr("isn't the report of run 20261201T090002000Z-00000002"));
  BundleInput other = input();
  other.profile = "full";
  EXPECT_THAT(make_bundle(other).error().message, HasSubstr("full"));
}

TEST_F(BundleTest, NamesWhatIsMissingExtraAndModified) {
  EXPECT_THAT(findings(without(bundle, report_path(2))), ElementsAre("missing " + report_path(2)));
  EXPECT_THAT(findings(without(bundle, "verdicts/acceptance.json")), ElementsAre("missing verdicts/acceptance.json"));
  EXPECT_THAT(findings(without(bundle, kBundleIndex)), ElementsAre("missing index.jsonl"));
  EXPECT_THAT(findings(with(bundle, "reports/more.json", "{}")), ElementsAre("extra reports/more.json"));
  for (const auto& [path, content] : bundle) {
    std::string changed = content;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 0x01);
    const std::vector<std::string> found = findings(with(bundle, path, changed));
    if (path == kBundleManifest) {
      EXPECT_THAT(found, Not(ElementsAre()));  // no JSON any more, or another digest
    } else {
      EXPECT_THAT(found, ElementsAre("modified " + path));
    }
  }
}

TEST_F(BundleTest, AReportOfAnotherTimeIsStale) {
  const std::string other = dump_json(report_json(make_report(7, {})));
  EXPECT_THAT(findings(with(bundle, report_path(2), other)), ElementsAre("stale " + report_path(2)));
}

TEST_F(BundleTest, AnotherRegistryIsStale) {
  std::vector<RegistryRecord> records = records_in(bundle);
  records.pop_back();
  EXPECT_THAT(findings(with(bundle, kBundleIndex, registry_of(records))), ElementsAre("stale index.jsonl"));
  records.push_back(record_of(make_report(7, {}), report_path(7)));
  EXPECT_THAT(findings(with(bundle, kBundleIndex, registry_of(records))), ElementsAre("stale index.jsonl"));
}

TEST_F(BundleTest, TheOrderOfRecordsCounts) {
  std::vector<RegistryRecord> records = records_in(bundle);
  std::swap(records[0], records[1]);
  EXPECT_THAT(findings(with(bundle, kBundleIndex, registry_of(records))), ElementsAre("reordered index.jsonl"));
}

TEST_F(BundleTest, ARegistryThatWasCutIsTruncated) {
  const std::string& text = bundle.at(kBundleIndex);
  EXPECT_THAT(findings(with(bundle, kBundleIndex, text.substr(0, text.size() - 1))),
              ElementsAre("truncated index.jsonl"));
}

// Made by somebody who makes all digests right afterwards.
TEST_F(BundleTest, RecordsAgreeWithTheirReports) {
  std::vector<RegistryRecord> records = records_in(bundle);
  records[1].cases_done = 0;
  EXPECT_THAT(findings(resealed(with(bundle, kBundleIndex, registry_of(records)))),
              ElementsAre("inconsistent index.jsonl"));
  EXPECT_THAT(findings(resealed(with(bundle, report_path(2), "{}"))), ElementsAre("inconsistent " + report_path(2)));
  records = records_in(bundle);
  records[1].path = records[0].path;
  EXPECT_THAT(findings(resealed(with(bundle, kBundleIndex, registry_of(records)))),
              Contains("inconsistent index.jsonl"));
}

TEST_F(BundleTest, ARunCountsOnce) {
  std::vector<RegistryRecord> records = records_in(bundle);
  records.push_back(records[0]);
  EXPECT_THAT(findings(resealed(with(bundle, kBundleIndex, registry_of(records)))),
              ElementsAre("inconsistent index.jsonl"));
}

TEST_F(BundleTest, ARecordWithAWrongDigestIsInconsistent) {
  std::string text = bundle.at(kBundleIndex);
  text.replace(text.find("\"cases\":1"), 9, "\"cases\":2");
  Files changed = with(bundle, kBundleIndex, text);
  const Manifest manifest = *parse_manifest(bundle.at(kBundleManifest), "m");
  std::string sealed = bundle.at(kBundleManifest);
  const std::string before = identity_of(bundle.at(kBundleIndex)).sha256, after = identity_of(text).sha256;
  sealed.replace(sealed.find(before), before.size(), after);
  const Json json = *parse_json(sealed, "m");
  Json rest = json;
  rest.erase("manifest_digest");
  rest["manifest_digest"] = sha256(canonical_json(rest)).hex();
  EXPECT_NE(rest["manifest_digest"], Json(manifest.digest));
  changed[kBundleManifest] = dump_json_pretty(rest) + "\n";
  EXPECT_THAT(findings(changed), ElementsAre("inconsistent index.jsonl"));
}

TEST_F(BundleTest, ABudgetWithoutTheProfileIsInconsistent) {
  const std::string other = R"({"schema": "nano-mooncake/pressure-budgets/v1", "profiles": {}})";
  EXPECT_THAT(findings(resealed(with(bundle, kBundleBudget, other))),
              ElementsAre("inconsistent pressure_budgets.json"));
}

TEST_F(BundleTest, EachPartIsThere) {
  for (const char* part : {kBundleBudget, kBundleWorkloads})
    EXPECT_THAT(findings(resealed(without(bundle, part))), ElementsAre(std::string("missing ") + part));
}

TEST_F(BundleTest, AManifestHasToBeOne) {
  EXPECT_THAT(findings(without(bundle, kBundleManifest)), ElementsAre("missing manifest.json"));
  for (const char* text : {"{}", "", "[]", "null", R"({"schema": "nano-mooncake/bundle/v2"})"})
    EXPECT_THAT(findings(with(bundle, kBundleManifest, text)), ElementsAre("malformed manifest.json")) << text;
}

// Each makes the manifest's own digest right again.
class ManifestTest : public BundleTest {
 protected:
  template <typename Change>
  std::vector<std::string> changed(Change change) const {
    Json json = *parse_json(bundle.at(kBundleManifest), "m");
    change(json);
    json.erase("manifest_digest");
    json["manifest_digest"] = canonical_digest(json).hex();
    return findings(with(bundle, kBundleManifest, dump_json_pretty(json) + "\n"));
  }
};

TEST_F(ManifestTest, ItsDigestIsChecked) {
  std::string text = bundle.at(kBundleManifest);
  text.replace(text.find("\"smoke\""), 7, "\"smoky\"");
  EXPECT_THAT(findings(with(bundle, kBundleManifest, text)), Contains("modified manifest.json"));
}

TEST_F(ManifestTest, DoesNotListItselfOrAFileTwice) {
  EXPECT_THAT(changed([](Json& json) { json["files"][0]["path"] = kBundleManifest; }),
              Contains("malformed manifest.json"));
  EXPECT_THAT(changed([](Json& json) { json["files"].push_back(json["files"][0]); }),
              ElementsAre("duplicate-name index.jsonl"));
  EXPECT_THAT(changed([](Json& json) {
                Json other = json["files"][0];
                other["path"] = "../index.jsonl";
                json["files"].push_back(other);
              }),
              Contains("path-escape ../index.jsonl"));
}

TEST_F(ManifestTest, HasNoOtherFormThanThatOfAnExport) {
  EXPECT_THAT(changed([](Json&) {}), ElementsAre());
  EXPECT_THAT(changed([](Json& json) { json["note"] = "fine"; }), ElementsAre("modified manifest.json"));
  EXPECT_THAT(changed([](Json& json) { std::swap(json["files"][0], json["files"][1]); }),
              ElementsAre("modified manifest.json"));
  EXPECT_THAT(changed([](Json& json) { std::swap(json["reports"][0], json["reports"][1]); }),
              ElementsAre("modified manifest.json"));
  EXPECT_THAT(findings(with(bundle, kBundleManifest, bundle.at(kBundleManifest) + "\n")),
              ElementsAre("modified manifest.json"));
  EXPECT_THAT(changed([](Json& json) { json["reports"].push_back(json["reports"][0]); }),
              ElementsAre("modified manifest.json"));
  EXPECT_THAT(changed([](Json& json) { std::swap(json["records"][0], json["records"][1]); }),
              ElementsAre("reordered index.jsonl"));
}

TEST_F(BundleTest, MoreValuesThanEvidenceNeedsAreRefusedUnparsed) {
  std::string many = "[0";
  for (std::size_t i = 0; i < kBundleValuesMax; ++i) many += ",0";
  many += "]";
  EXPECT_EQ(parse_bundle_json(many, "many").error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(findings(with(bundle, kBundleManifest, many)), ElementsAre("bomb manifest.json"));
  EXPECT_THAT(findings(resealed(with(bundle, report_path(1), many))), ElementsAre("bomb " + report_path(1)));
  BundleInput too_much = input();
  too_much.budget_text = many;
  EXPECT_THAT(make_bundle(too_much).error().message, HasSubstr("budgets.json: more than 2000000 values"));
}

TEST(BundleNames, AreRefusedWhereTheyLeaveOrDifferBySystem) {
  const std::pair<const char*, const char*> cases[] = {
      {"../x", "path-escape"},       {"a/../../x", "path-escape"}, {"/etc/passwd", "path-escape"},
      {"a\\b", "path-escape"},       {"C:/x", "path-escape"},      {"a:b", "path-escape"},
      {"a//b", "path-escape"},       {"./a", "path-escape"},       {"", "malformed"},
      {"a\x01", "malformed"},        {"a\x7f", "malformed"},       {"a\xff", "malformed"},
      {"a\u202e.json", "malformed"}, {"a\u009b", "malformed"},     {"a.", "malformed"},
      {"a /b", "malformed"}};
  for (const auto& [name, kind] : cases) {
    const std::vector<ContainerFault> faults = name_faults({name});
    ASSERT_EQ(faults.size(), 1u) << name;
    EXPECT_EQ(faults[0].kind, kind) << name;
  }
  EXPECT_THAT(name_faults({"a", "a.b", "b/a", "b/\u00e9", "..a", "b/c..d"}), ElementsAre());
}

TEST(BundleNames, ThatSomeSystemTakesForOneAreThereTwice) {
  const std::vector<std::string> pairs[] = {
      {"a", "a"},   {"a", "A"},   {"\u00e9", "e\u0301"}, {"\u00c9", "e\u0301"}, {"stra\u00dfe", "STRASSE"}, {"a", "a/"},
      {"a", "a/b"}, {"A/b", "a"}, {"\uff41", "a"},       {"\ufb01", "fi"},      {"b/\u212b", "b/\u00e5"}};
  for (const std::vector<std::string>& names : pairs) {
    const std::vector<ContainerFault> faults = name_faults(names);
    ASSERT_EQ(faults.size(), 1u) << names[0] << " " << names[1];
    EXPECT_EQ(faults[0].kind, "duplicate-name");
  }
}

TEST(BundleNames, ArePrintedOnOneLine) {
  EXPECT_EQ(printable_name("reports/\u00e9.json"), "reports/\u00e9.json");
  EXPECT_EQ(printable_name("a\nb"), "a\\nb");
  EXPECT_EQ(printable_name("a\u202eb\u009b"), "a\\u202eb\\u009b");
  EXPECT_EQ(printable_name("a\xff"), "a\\ufffd");
  EXPECT_EQ(printable_name(std::string(500, 'x')).size(), 203u);
}

// A bundle's folder, and what is done to it.
class BundleFolderTest : public BundleTest {
 protected:
  BundleFolderTest() { EXPECT_TRUE(write_bundle(bundle, out)); }
  std::vector<std::string> found() const { return lines_of(*verify_bundle(out)); }
  static void write(const Path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
  std::vector<std::string> siblings() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(out.parent_path()))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  const Path out = folder.path() / "bundles" / "one";
};

TEST_F(BundleFolderTest, NoLinkIsFollowed) {
  const Path report = out / report_path(1), aside = folder.path() / "aside";
  std::filesystem::rename(report, aside);
  std::filesystem::create_symlink(aside, report);
  EXPECT_THAT(found(), ElementsAre("link " + report_path(1)));
  std::filesystem::remove(report);
  std::filesystem::rename(aside, report);
  EXPECT_THAT(found(), ElementsAre());
  std::filesystem::rename(out / "reports", aside);
  std::filesystem::create_directory_symlink(aside, out / "reports");
  EXPECT_THAT(found(), Contains("link reports"));
  EXPECT_THAT(found(), Contains("missing " + report_path(1)));
}

TEST_F(BundleFolderTest, WhatIsNoFileIsMalformedAndNeverWaitedFor) {
  std::filesystem::remove(out / report_path(1));
  ASSERT_EQ(::mkfifo((out / report_path(1)).c_str(), 0600), 0);
  EXPECT_THAT(found(), ElementsAre("malformed " + report_path(1)));
}

TEST_F(BundleFolderTest, FoldersThatHoldNothingAreExtra) {
  std::filesystem::create_directories(out / "verdicts" / "more");
  EXPECT_THAT(found(), ElementsAre("extra verdicts/more"));
}

TEST_F(BundleFolderTest, FoldersWithoutEndAndFilesWithoutMeasureAreRefused) {
  Path deep = out;
  for (int i = 0; i < 20; ++i) deep /= "d";
  std::filesystem::create_directories(deep);
  ASSERT_EQ(found().size(), 1u);
  EXPECT_THAT(found()[0], HasSubstr("malformed d/d/"));
  std::filesystem::remove_all(out / "d");
  std::filesystem::resize_file(out / kBundleWorkloads, kBundleFileBytesMax + 1);  // sparse
  EXPECT_THAT(found(), ElementsAre("bomb workload_bundles.json"));
}

TEST_F(BundleFolderTest, IsReplacedWhole) {
  const Files smaller = resealed(without(bundle, "verdicts/acceptance.json"));
  for (const Path& name : {out, out / ""}) {  // with and without a slash at its end
    ASSERT_TRUE(write_bundle(smaller, name));
    EXPECT_FALSE(std::filesystem::exists(out / "verdicts"));
    EXPECT_THAT(found(), ElementsAre());
    ASSERT_TRUE(write_bundle(bundle, name));
    EXPECT_TRUE(std::filesystem::exists(out / "verdicts"));
  }
  ASSERT_TRUE(write_bundle(bundle, folder.path() / "bundles" / "two" / ""));
  EXPECT_THAT(siblings(), ElementsAre("one", "two"));
}

TEST_F(BundleFolderTest, WhatIsNotOursStays) {
  write(out / "notes.txt", "mine");
  EXPECT_THAT(write_bundle(bundle, out).error().message, HasSubstr("notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(out / "notes.txt"));
  const Path other = folder.path() / "bundles" / "other", file = folder.path() / "bundles" / "file";
  std::filesystem::create_directories(other);
  write(other / "manifest.json", "{\"schema\": \"theirs\"}");
  write(file, "");
  for (const Path& target : {other, file}) {
    const Result<void> written = write_bundle(bundle, target);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(written.error().message, HasSubstr(target.string()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(file));
  EXPECT_THAT(siblings(), ElementsAre("file", "one", "other"));
}

}  // namespace
}  // namespace nmc::evidence
