#include "evidence/registry.h"

#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "evidence/test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RegistryTest : public ::testing::Test {
 protected:
  const TemporaryFolder folder = *TemporaryFolder::create();
  const Path index = folder.path() / "results" / "index.jsonl";

  // The report's file, written where its record says.
  RegistryRecord add(int number) {
    const ExperimentReport report =
        make_report(number, {make_case({"w", "monolithic", "none", "1", "cold", "none"}, {1})});
    const std::string path = fmt::format("reports/{}.json", number);
    EXPECT_TRUE(write_file_atomic(index.parent_path() / path, dump_json(report_json(report))));
    RegistryRecord record = record_of(report, path);
    EXPECT_TRUE(append_record(index, record));
    return record;
  }
  std::vector<std::string> ids() const {
    std::vector<std::string> found;
    const Registry registry = *read_registry(index);
    for (const RegistryRecord& record : registry.records) found.push_back(record.run_id);
    return found;
  }
  std::string text() const { return *read_file(index); }
  void write(std::string_view content) const { std::ofstream(index, std::ios::binary) << content; }
};

TEST_F(RegistryTest, AppendsAndReads) {
  const RegistryRecord first = add(1), second = add(2);
  EXPECT_THAT(read_registry(index)->records, ElementsAre(first, second));
  EXPECT_EQ(read_registry(folder.path() / "none").error().code, ErrorCode::kNotFound);
}

TEST_F(RegistryTest, TheSameAgainChangesNothingAndAnotherOfThatNameIsRefused) {
  RegistryRecord record = add(1);
  EXPECT_TRUE(append_record(index, record));
  EXPECT_EQ(ids().size(), 1u);
  record.suite = "other";
  EXPECT_EQ(append_record(index, record).error().code, ErrorCode::kAlreadyExists);
}

TEST_F(RegistryTest, WhatAKilledWriterLeftOfALineIsNoRecordAndGoesWithTheNext) {
  const RegistryRecord first = add(1);
  const std::string line = text();
  for (const std::size_t cut : {std::size_t{1}, line.size() / 2, line.size() - 1}) {
    write(line + line.substr(0, cut));
    EXPECT_TRUE(read_registry(index)->torn);
    EXPECT_THAT(read_registry(index)->records, ElementsAre(first)) << cut;
    const RegistryRecord next = add(2);
    EXPECT_THAT(read_registry(index)->records, ElementsAre(first, next)) << cut;
    EXPECT_FALSE(read_registry(index)->torn);
  }
  write(line.substr(0, 5));
  EXPECT_TRUE(append_record(index, first));
  EXPECT_EQ(text(), line);
}

TEST_F(RegistryTest, WritersAtOnceLoseNothing) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 10; ++i)
        ASSERT_TRUE(append_record(index, record_of(make_report(10 * writer + i, {}), "r.json")));
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(ids().size(), 40u);
}

TEST_F(RegistryTest, AChangedRecordIsNamedByItsLine) {
  add(1);
  add(2);
  std::string changed = text();
  changed.replace(changed.rfind("\"cases\":1"), 9, "\"cases\":2");
  write(changed);
  EXPECT_THAT(read_registry(index).error().message, HasSubstr("index.jsonl:2: the record's content has the digest"));
}

TEST_F(RegistryTest, ReportsThatAreGoneOrChangedAreLeftOutWithTheReason) {
  add(1);
  add(2);
  add(3);
  const Path reports = index.parent_path() / "reports";
  std::filesystem::remove(reports / "1.json");
  std::filesystem::copy_file(reports / "3.json", reports / "2.json", std::filesystem::copy_options::overwrite_existing);
  const History history = *load_history(index);
  ASSERT_EQ(history.runs.size(), 1u);
  ASSERT_EQ(history.left_out.size(), 2u);
  EXPECT_THAT(history.left_out[0].why, HasSubstr("1.json"));
  EXPECT_THAT(history.left_out[1].why, HasSubstr("isn't the one that the record is of"));
}

TEST_F(RegistryTest, TheOrderOfRecordsDoesNotCount) {
  add(2);
  add(1);
  const History history = *load_history(index);
  EXPECT_LT(history.runs[0].ended_at, history.runs[1].ended_at);
}

TEST_F(RegistryTest, IsRebuiltByteForByte) {
  for (int number = 1; number <= 5; ++number) add(number);
  const std::string original = text();
  ASSERT_TRUE(write_file_atomic(index.parent_path() / "reports" / "other.json", "{\"schema\":\"x\"}"));
  std::filesystem::remove(index);
  const Rebuilt rebuilt = *rebuild_registry(index.parent_path(), index);
  EXPECT_EQ(rebuilt.records, 5u);
  EXPECT_THAT(rebuilt.left_out, ElementsAre());
  EXPECT_EQ(text(), original);
}

TEST_F(RegistryTest, RebuildingListsReportsThatFail) {
  add(1);
  const Path bad = index.parent_path() / "reports" / "bad.json";
  Json json = report_json(make_report(2, {}));
  json["suite"] = "better";
  ASSERT_TRUE(write_file_atomic(bad, dump_json(json)));
  const Rebuilt rebuilt = *rebuild_registry(index.parent_path(), index);
  EXPECT_EQ(rebuilt.records, 1u);
  EXPECT_THAT(rebuilt.left_out, ElementsAre(HasSubstr("bad.json: its content has the digest")));
  EXPECT_EQ(rebuild_registry(folder.path() / "none", index).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace nmc::evidence
