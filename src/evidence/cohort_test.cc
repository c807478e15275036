#include "evidence/cohort.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Why the first of three runs isn't judged with the newest; "" if it is.
std::string apart(const std::function<void(Provenance&)>& change, bool any_source = false) {
  History history = good_history();
  change(history.runs[0].provenance);
  const Cohort cohort = any_source ? *runs_of_machine(history) : *cohort_of(history);
  EXPECT_EQ(cohort.runs.size() + cohort.apart.size(), kGoodRuns);
  return cohort.apart.empty() ? "" : cohort.apart[0].why;
}

TEST(Cohort, IsOfOneMachineModelKindOfEvidenceSourceAndBuildType) {
  const std::string other(64, 'f');
  EXPECT_EQ(apart([](Provenance&) {}), "");
  EXPECT_THAT(apart([&](Provenance& p) { p.machine.fingerprint = other; }), HasSubstr("machine: ffffffffffff..., "));
  EXPECT_THAT(apart([&](Provenance& p) { p.model.digest = other; }), HasSubstr("model: ffffffffffff..., "));
  EXPECT_EQ(apart([](Provenance& p) { p.evidence_tier = kTierCheckpoint; }),
            "evidence tier: local-checkpoint, expected random-weight-mechanism");
  EXPECT_THAT(apart([&](Provenance& p) { p.build.source_digest = other; }), HasSubstr("source: ffffffffffff..., "));
  EXPECT_EQ(apart([](Provenance& p) { p.build.build_type = "Debug"; }), "build type: Debug, expected Release");
}

TEST(Cohort, OfAMachineHasBuildsOfAnySource) {
  const std::string other(64, 'f');
  EXPECT_EQ(apart([&](Provenance& p) { p.build.source_digest = other; }, true), "");
  EXPECT_THAT(apart([&](Provenance& p) { p.machine.fingerprint = other; }, true), HasSubstr("machine"));
  EXPECT_THAT(apart([](Provenance& p) { p.build.build_type = "Debug"; }, true), HasSubstr("build type"));
}

TEST(Cohort, AroundARunHasNoneThatEndedLater) {
  const History history = good_history();
  EXPECT_THAT(cohort_of(history, history.runs[1].run_id)->run_ids(),
              ElementsAre(history.runs[0].run_id, history.runs[1].run_id));
  EXPECT_EQ(cohort_of(history, "none-such").error().code, ErrorCode::kNotFound);
}

TEST(Cohort, SkippedRunsDoNotCount) {
  History history = good_history();
  history.runs.back().skipped = "no checkpoint";
  const Cohort cohort = *cohort_of(history);
  EXPECT_THAT(cohort.run_ids(), ElementsAre(history.runs[0].run_id, history.runs[1].run_id));
  EXPECT_THAT(cohort.apart, IsEmpty());
  for (ExperimentReport& run : history.runs) run.skipped = "no checkpoint";
  EXPECT_EQ(cohort_of(history).error().code, ErrorCode::kNotFound);
}

TEST(Cohort, KnowsOfReportsThatCannotBeUsed) {
  History history = good_history();
  history.left_out.push_back({"a-run", "reports/a.json", "it was changed"});
  EXPECT_THAT(cohort_of(history)->left_out, SizeIs(1));
}

}  // namespace
}  // namespace nmc::evidence
