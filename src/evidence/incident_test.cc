#include "evidence/incident.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

PressureVerdict judged(const History& history, std::vector<BudgetRule> rules) {
  return *judge_pressure(*cohort_of(history), {.profiles = {{"full", std::move(rules)}}, .calibration = {}},
                         good_options());
}

std::vector<Incident> explained(const History& history, std::vector<BudgetRule> rules) {
  return explain_failures(history, *cohort_of(history), judged(history, std::move(rules)));
}

// Every request of pd-global in the runs of the newest build.
void slow_down(History& history, const char* phase, double ms) {
  const std::string source = history.runs.back().provenance.build.source_digest;
  for (ExperimentReport& run : history.runs) {
    if (run.provenance.build.source_digest != source) continue;
    for (RequestRow& request : run.cases[2].requests) {
      request.metrics[phase] += ms;
      request.metrics["ttft_ms"] += ms;
      request.metrics["e2e_ms"] += ms;
    }
  }
}

// The first run is of an older build.
History history_of_two_builds() {
  History history = good_history();
  history.runs[0].provenance.build.source_digest = sha256("older").hex();
  return history;
}

TEST(Incident, WithoutAFailureThereIsNone) {
  EXPECT_THAT(explained(good_history(), {rule_on("ttft_ms", "mean", 35)}), IsEmpty());
}

TEST(Incident, ATimeIsAttributedToTheStageThatGrewSinceTheOlderBuild) {
  History history = history_of_two_builds();
  slow_down(history, "queue_ms", 100);
  slow_down(history, "lookup_ms", 2);
  const std::vector<Incident> incidents = explained(history, {rule_on("ttft_ms", "p95", 80)});
  ASSERT_THAT(incidents, SizeIs(1));
  const Incident& incident = incidents[0];
  EXPECT_EQ(incident.phase, "queue_ms") << "prefill takes the longer time, but didn't grow";
  EXPECT_EQ(incident.resource, "places in the workers' batches");
  EXPECT_THAT(incident.baseline, ElementsAre(history.runs[0].run_id));
  EXPECT_EQ(incident.evidence,
            "100 requests: mean queue_ms of 100.000 ms, 0.000 ms before; without that growth the p95 of ttft_ms would "
            "be 59.000");
  EXPECT_EQ(incident.ruled_out,
            "mean lookup_ms of 2.000 ms, 0.000 ms before; without that growth the p95 of ttft_ms would be 157.000")
      << "still beyond the limit: it doesn't explain it";
}

TEST(Incident, AnAlternativeThatWouldDoAsWellIsNotRuledOut) {
  History history = history_of_two_builds();
  slow_down(history, "queue_ms", 12);
  slow_down(history, "lookup_ms", 10);
  const std::vector<Incident> incidents = explained(history, {rule_on("ttft_ms", "p95", 70)});
  EXPECT_EQ(incidents.at(0).phase, "queue_ms");
  EXPECT_THAT(incidents[0].ruled_out, StartsWith("not ruled out: mean lookup_ms"));
}

TEST(Incident, WithoutAnOlderBuildStagesAreComparedWithEachOther) {
  History history = good_history();
  slow_down(history, "restore_ms", 20);
  const Incident incident = explained(history, {rule_on("ttft_ms", "mean", 5)}).at(0);
  EXPECT_EQ(incident.phase, "prefill_ms");
  EXPECT_THAT(incident.baseline, IsEmpty());
  EXPECT_THAT(incident.evidence, HasSubstr("mean prefill_ms of 34.500 ms; without it the mean of ttft_ms would be 20"));
  EXPECT_THAT(incident.ruled_out, HasSubstr("restore_ms"));
}

TEST(Incident, WhereNothingGrewNoGrowthIsTold) {
  const Incident incident = explained(history_of_two_builds(), {rule_on("ttft_ms", "mean", 5)}).at(0);
  EXPECT_EQ(incident.phase, "prefill_ms");
  EXPECT_THAT(incident.evidence, Not(HasSubstr("before")));
  EXPECT_THAT(incident.baseline, IsEmpty());
}

TEST(Incident, AnotherWorkloadIsNoBaseline) {
  History history = history_of_two_builds();
  history.runs[0].cases[2].workload_digest = sha256("another").hex();
  slow_down(history, "queue_ms", 5);
  EXPECT_THAT(explained(history, {rule_on("ttft_ms", "mean", 5)}).at(0).baseline, IsEmpty());
}

TEST(Incident, StagesOutsideATimeAreNoCauseOfIt) {
  History history = history_of_two_builds();
  slow_down(history, "queue_ms", 30);
  for (ExperimentReport& run : history.runs) {
    for (RequestRow& request : run.cases[2].requests) request.metrics["decode_ms"] = &run == &history.runs[0] ? 1 : 500;
  }
  EXPECT_EQ(explained(history, {rule_on("ttft_ms", "mean", 5)}).at(0).phase, "queue_ms");
  EXPECT_EQ(explained(history, {rule_on("e2e_ms", "mean", 5)}).at(0).phase, "decode_ms");
  EXPECT_EQ(explained(history, {rule_on("queue_ms", "mean", 5)}).at(0).ruled_out, "it is the only stage of that time");
}

TEST(Incident, ACounterIsComparedWithAnotherThatTellsOfAnotherCause) {
  History history = good_history();
  case_of(history, key_of("pd-global")).resources["leaked_handles"] = 2;
  const Incident leak = explained(history, {rule_on("leaked_handles", "max", 0)}).at(0);
  EXPECT_EQ(leak.resource, "pins of cached blocks");
  EXPECT_EQ(leak.evidence, "max of leaked_handles is 2 over 3 samples");
  EXPECT_EQ(leak.ruled_out, "a worker that died with them: worker_failures is 0 at most");
  case_of(history, key_of("pd-global")).resources["worker_failures"] = 1;
  EXPECT_EQ(explained(history, {rule_on("leaked_handles", "max", 0)}).at(0).ruled_out,
            "not ruled out: a worker that died with them: worker_failures is 1 at most");
}

TEST(Incident, EveryRuleThatFailedHasOneAndTheVerdictStays) {
  const History history = good_history();
  const PressureVerdict verdict = judged(history, {rule_on("ttft_ms", "mean", 5), rule_on("ttft_ms", "p99", 5),
                                                   rule_on("e2e_ms", "max", 5), rule_on("leaked_handles", "max", 0)});
  const Json json = incidents_json(verdict, explain_failures(history, *cohort_of(history), verdict));
  EXPECT_EQ(json["schema"], "nano-mooncake/pressure-incident/v1");
  EXPECT_EQ(json["verdict"], "fail");
  ASSERT_EQ(json["incidents"].size(), 2u);
  EXPECT_EQ(json["incidents"][0]["id"], "ttft_ms-mean");
  EXPECT_EQ(json["incidents"][1]["id"], "e2e_ms-max");
}

std::vector<NearMiss> near(const History& history, std::vector<BudgetRule> rules, double part) {
  return near_misses(*cohort_of(history), judged(history, std::move(rules)), part);
}

TEST(Margin, ListsRulesWithinThePartOfTheirLimitOnEitherSide) {
  const std::vector<BudgetRule> rules = {rule_on("ttft_ms", "p50", 35), rule_on("ttft_ms", "mean", 45),
                                         rule_on("ttft_ms", "max", 58), rule_on("leaked_handles", "max", 0)};
  const std::vector<NearMiss> found = near(good_history(), rules, 0.1);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].rule.rule.id, "ttft_ms-p50");
  EXPECT_EQ(found[0].rule.verdict, Verdict::kPass);
  EXPECT_NEAR(found[0].margin, 1.0 / 35, 1e-9);
  EXPECT_EQ(found[1].rule.rule.id, "ttft_ms-max");
  EXPECT_EQ(found[1].rule.verdict, Verdict::kFail);
  EXPECT_NEAR(found[1].margin, -1.0 / 58, 1e-9);
  EXPECT_THAT(near(good_history(), rules, 0.25), SizeIs(3));
}

TEST(Margin, OfAtLeastIsTheOtherWayRound) {
  BudgetRule rule = rule_on("ttft_ms", "mean", 33);
  rule.at_least = true;
  EXPECT_NEAR(near(good_history(), {rule}, 0.1).at(0).margin, 1.5 / 33, 1e-9);
}

TEST(Margin, TellsTrendAndNoiseRunByRun) {
  History history = good_history();
  for (std::size_t run = 0; run < kGoodRuns; ++run) {
    for (RequestRow& request : history.runs[run].cases[2].requests)
      request.metrics["ttft_ms"] = 100 + 10 * static_cast<double>(run);
  }
  const NearMiss miss = near(history, {rule_on("ttft_ms", "mean", 111)}, 0.1).at(0);
  ASSERT_THAT(miss.values, SizeIs(3));
  EXPECT_EQ(miss.values[2], std::pair(history.runs[2].run_id, 120.0));
  EXPECT_NEAR(miss.trend, 0.2, 1e-9);
  EXPECT_NEAR(miss.noise, 20.0 / 110, 1e-9);
}

TEST(Margin, OneRunHasNeitherTrendNorNoise) {
  History history = good_history();
  history.runs.resize(1);
  const std::vector<BudgetRule> rules = {rule_on("ttft_ms", "mean", 35)};
  const Json json = near_misses_json(judged(history, rules), near(history, rules, 0.1), 0.1);
  EXPECT_EQ(json["schema"], "nano-mooncake/pressure-margin/v1");
  EXPECT_EQ(json["rules"][0]["trend"], "not_available");
  EXPECT_EQ(json["rules"][0]["noise"], "not_available");
}

}  // namespace
}  // namespace nmc::evidence
