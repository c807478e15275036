#include "evidence/diagnosis.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const CaseKey kGlobal = key_of("pd-global");

void slow_down(CaseRow& row, std::size_t request, const char* phase, double ms) {
  auto& metrics = row.requests.at(request).metrics;
  metrics[phase] += ms;
  metrics["e2e_ms"] += ms;
}

TEST(Diagnosis, FindsNothingWhereNothingGrew) {
  const History history = good_history();
  const Diagnosis diagnosis = *diagnose(history, "", "");
  EXPECT_EQ(diagnosis.run, history.runs[2].run_id);
  EXPECT_THAT(diagnosis.baseline, ElementsAre(history.runs[0].run_id, history.runs[1].run_id));
  EXPECT_EQ(diagnosis.compared, 3 * kGoodRequests) << "cases with a fault aren't compared";
  EXPECT_THAT(diagnosis.regressions, IsEmpty());
}

TEST(Diagnosis, NamesTheRequestAndTheStageThatCarriesMostOfTheGrowth) {
  History history = good_history();
  slow_down(case_of(history, kGlobal), 4, "transport_ms", 30);
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 10);
  const Diagnosis diagnosis = *diagnose(history, "", "");
  ASSERT_THAT(diagnosis.regressions, SizeIs(1));
  const Regression& row = diagnosis.regressions[0];
  EXPECT_EQ(row.key, kGlobal);
  EXPECT_EQ(row.request, "r4");
  EXPECT_EQ(row.before_ms, 28);
  EXPECT_EQ(row.now_ms, 68);
  EXPECT_EQ(kPhases[row.phase].metric, "transport_ms");
  EXPECT_EQ(row.share(), 0.75);
}

TEST(Diagnosis, EveryStageCanBeTheOne) {
  for (const Phase& phase : kPhases) {
    History history = good_history();
    slow_down(case_of(history, kGlobal), 0, std::string(phase.metric).c_str(), 50);
    const Diagnosis diagnosis = *diagnose(history, "", "");
    ASSERT_THAT(diagnosis.regressions, SizeIs(1)) << phase.metric;
    EXPECT_EQ(kPhases[diagnosis.regressions[0].phase].metric, phase.metric);
  }
}

TEST(Diagnosis, GrowthWithinTheNoiseOfEarlierRunsIsNone) {
  History history = good_history();
  slow_down(history.runs[0].cases[2], 4, "queue_ms", 40);  // it has been so before
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 39);
  EXPECT_THAT(diagnose(history, "", "")->regressions, IsEmpty());
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 2);
  EXPECT_THAT(diagnose(history, "", "")->regressions, SizeIs(1));
}

TEST(Diagnosis, GrowthOfATwentiethIsNotWorthTelling) {
  History history = good_history();
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 1.4);  // of 28
  EXPECT_THAT(diagnose(history, "", "")->regressions, IsEmpty());
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 0.1);
  EXPECT_THAT(diagnose(history, "", "")->regressions, SizeIs(1));
}

TEST(Diagnosis, MeasuredOnceBeforeNoiseIsNotKnownAndNothingIsTold) {
  History history = good_history();
  history.runs.erase(history.runs.begin());
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 400);
  const Diagnosis diagnosis = *diagnose(history, "", "");
  EXPECT_EQ(diagnosis.without_noise, diagnosis.compared);
  EXPECT_THAT(diagnosis.regressions, IsEmpty());
  EXPECT_THAT(diagnosis.caveats, ElementsAre(HasSubstr("their noise isn't known")));
}

TEST(Diagnosis, OnlyWhatWasAskedTheSameIsCompared) {
  History history = good_history();
  case_of(history, kGlobal).workload_digest = sha256("another").hex();
  slow_down(case_of(history, kGlobal), 4, "queue_ms", 400);
  const Diagnosis diagnosis = *diagnose(history, "", "");
  EXPECT_THAT(diagnosis.regressions, IsEmpty());
  EXPECT_EQ(diagnosis.compared, 2 * kGoodRequests);
  EXPECT_THAT(diagnosis.caveats, ElementsAre("50 requests weren't asked before in that way"));
}

TEST(Diagnosis, TheBaselineIsTheNewestEarlierBuildOfTheSameConditions) {
  History history = good_history();
  history.runs.push_back(good_report(4));
  history.runs[0].provenance.build.source_digest = sha256("older").hex();
  history.runs[2].provenance.machine.fingerprint = sha256("another").hex();
  history.runs[3].provenance.build.source_digest = sha256("newer").hex();
  const Diagnosis diagnosis = *diagnose(history, "", "");
  EXPECT_THAT(diagnosis.baseline, ElementsAre(history.runs[1].run_id));
  EXPECT_THAT(diagnosis.caveats[0], HasSubstr("the builds differ"));
}

TEST(Diagnosis, RunsThatCannotBeComparedAreRefusedByName) {
  History history = good_history();
  const auto refusal = [&](const std::function<void(Provenance&)>& change) {
    History changed = history;
    change(changed.runs[0].provenance);
    const auto diagnosis = diagnose(changed, "", changed.runs[0].run_id);
    return diagnosis ? "taken" : diagnosis.error().message;
  };
  const std::string other = sha256("another").hex();
  EXPECT_THAT(refusal([](Provenance&) {}), "taken");
  EXPECT_THAT(refusal([&](Provenance& p) { p.machine.fingerprint = other; }), HasSubstr("their machine differs"));
  EXPECT_THAT(refusal([&](Provenance& p) { p.model.digest = other; }), HasSubstr("their model differs"));
  EXPECT_THAT(refusal([&](Provenance& p) { p.evidence_tier = kTierCheckpoint; }), HasSubstr("kind of evidence"));
  EXPECT_THAT(refusal([&](Provenance& p) { p.build.build_type = "Debug"; }), HasSubstr("their build type differs"));
  EXPECT_THAT(diagnose(history, "", "none-such").error().message, HasSubstr("no run none-such"));
  EXPECT_THAT(diagnose(history, "none-such", "").error().message, HasSubstr("no run none-such"));
  EXPECT_THAT(diagnose(history, "", history.runs.back().run_id).error().message, HasSubstr("its own baseline"));
  history.runs.resize(1);
  EXPECT_EQ(diagnose(history, "", "").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace nmc::evidence
