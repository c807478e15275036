#include "evidence/fault_budget.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CaseKey kPlain = key_of("pd-global");
const CaseKey kCrash = key_of("pd-global", "crash");
const CaseKey kCorrupt = key_of("pd-global", "corrupt-entry");
const CaseKey kTimeout = key_of("pd-global", "timeout");

FaultVerdict judged(const History& history) { return judge_faults(*cohort_of(history)); }

// Names of the invariants that don't pass, with their verdicts, and the first detail.
std::vector<std::string> troubles(const History& history) {
  std::vector<std::string> found;
  const FaultVerdict verdict = judged(history);
  for (const Invariant& invariant : verdict.invariants) {
    if (invariant.verdict != Verdict::kPass)
      found.push_back(fmt::format("{} {}: {}", invariant.name, verdict_name(invariant.verdict),
                                  invariant.breaches.empty() ? "" : invariant.breaches[0].detail));
  }
  return found;
}

struct Mutation {
  const char* name;
  CaseKey key;
  std::function<void(CaseRow&)> change;
  std::string trouble;  // the only one
};

std::ostream& operator<<(std::ostream& out, const Mutation& mutation) { return out << mutation.name; }

class FaultBudgetChange : public ::testing::TestWithParam<Mutation> {};

TEST_P(FaultBudgetChange, FlipsItsInvariantAndNoOther) {
  History history = good_history();
  ASSERT_THAT(troubles(history), IsEmpty());
  ASSERT_EQ(judged(history).verdict, Verdict::kPass);
  GetParam().change(case_of(history, GetParam().key));
  EXPECT_THAT(troubles(history), ::testing::ElementsAre(GetParam().trouble));
  EXPECT_EQ(judged(history).verdict,
            GetParam().trouble.find(" fail: ") != std::string::npos ? Verdict::kFail : Verdict::kInsufficient);
}

auto resource(const char* name, std::uint64_t value) {
  return [=](CaseRow& row) { row.resources[name] = value; };
}

INSTANTIATE_TEST_SUITE_P(
    OneField, FaultBudgetChange,
    ::testing::Values(
        Mutation{"LeakedHandle", kCrash, resource("leaked_handles", 1),
                 "no_leaked_handles fail: 1 leaked_handles, expected 0"},
        Mutation{"LeakWithoutFault", kPlain, resource("leaked_handles", 1),
                 "no_leaked_handles fail: 1 leaked_handles, expected 0"},
        Mutation{"ResidualSlot", kTimeout, resource("residual_slots", 1),
                 "no_residual_slots fail: 1 residual_slots, expected 0"},
        Mutation{"OrphanProcess", kCrash, resource("orphan_processes", 1),
                 "no_orphan_processes fail: 1 orphan_processes, expected 0"},
        Mutation{"OrphanShm", kCrash, resource("orphan_shm", 1), "no_orphan_shm fail: 1 orphan_shm, expected 0"},
        Mutation{"QuarantinedTooFew", kCorrupt, resource("quarantined_entries", 1),
                 "corrupt_entries_quarantined fail: 1 quarantined_entries, expected 2"},
        Mutation{"QuarantinedWithoutDamage", kPlain, resource("quarantined_entries", 1),
                 "corrupt_entries_quarantined fail: 1 quarantined_entries, expected 0"},
        Mutation{"LeakNotKnown", kCrash, [](CaseRow& row) { row.resources.erase("leaked_handles"); },
                 "no_leaked_handles insufficient_evidence: leaked_handles isn't known"},
        Mutation{"ToldTwoEnds", kCrash, [](CaseRow& row) { row.requests[5].endings = 2; },
                 "answered_once fail: request r5 was told 2 ends"},
        Mutation{"NeverTold", kPlain, [](CaseRow& row) { row.requests[5].endings = 0; },
                 "answered_once fail: request r5 was told 0 ends"},
        Mutation{"NeverFired", kCrash, [](CaseRow& row) { row.fault->fired = 0; },
                 "faults_observed insufficient_evidence: handover.span=exit@1 never acted in prefill-0"},
        Mutation{"NotObserved", kTimeout, [](CaseRow& row) { row.fault->observed = false; },
                 "faults_observed insufficient_evidence: the fault wasn't observed"},
        Mutation{"AnotherAnswer", kCrash,
                 [](CaseRow& row) {
                   char& digit = row.requests[7].tokens_digest.back();
                   digit = digit == '0' ? '1' : '0';
                 },
                 "answered_rightly fail: request r7 has another answer than without the fault"},
        Mutation{"NotFinished", kCrash,
                 [](CaseRow& row) {
                   row.requests[7].outcome = "failed";
                   row.requests[7].error = "unavailable";
                 },
                 "answered_rightly fail: request r7 ended as failed unavailable"},
        Mutation{"OutcomeDidNotOccur", kTimeout, [](CaseRow& row) { row.requests[3].outcome = "finished"; },
                 "answered_rightly fail: no request ended as deadline"},
        Mutation{"NothingToCompareWith", kCrash, [](CaseRow& row) { row.workload_digest = sha256("another").hex(); },
                 "answered_rightly insufficient_evidence: no run without a fault has request r0 of that workload"}),
    [](const auto& change) { return change.param.name; });

TEST(FaultBudget, AFaultThatWasSkippedIsInsufficientNeverAPass) {
  History history = good_history();
  CaseRow& row = case_of(history, kCrash);
  row.status = "skipped";
  row.reason = "this build has no failpoints";
  row.requests.clear();
  const FaultVerdict verdict = judged(history);
  EXPECT_EQ(verdict.verdict, Verdict::kInsufficient);
  for (const Invariant& invariant : verdict.invariants) {
    EXPECT_EQ(invariant.verdict, Verdict::kInsufficient) << invariant.name;
    EXPECT_EQ(invariant.breaches.at(0).detail, "skipped: this build has no failpoints");
    EXPECT_TRUE(invariant.breaches[0].missing);
  }
}

TEST(FaultBudget, ABrokenInvariantOutweighsMissingEvidence) {
  History history = good_history();
  case_of(history, kCrash).status = "skipped";
  case_of(history, kTimeout).resources["leaked_handles"] = 3;
  EXPECT_EQ(judged(history).verdict, Verdict::kFail);
}

TEST(FaultBudget, WithoutFaultsThereIsNothingToJudge) {
  History history = good_history();
  for (ExperimentReport& run : history.runs) run.cases.resize(3);
  const FaultVerdict verdict = judged(history);
  EXPECT_EQ(verdict.fault_cases, 0u);
  EXPECT_EQ(verdict.verdict, Verdict::kInsufficient);
}

TEST(FaultBudget, WhatAKilledServerHeldNobodyCountsButWhatItLeftBehindDoes) {
  History history = good_history();
  CaseRow& row = case_of(history, kCrash);
  row.fault->expected = "gone";
  row.resources.erase("leaked_handles");
  row.requests[0].outcome = "failed";
  EXPECT_THAT(troubles(history), IsEmpty());
  row.resources["orphan_shm"] = 1;
  EXPECT_THAT(troubles(history), ::testing::ElementsAre(HasSubstr("no_orphan_shm fail")));
}

TEST(FaultBudget, JsonNamesEveryBreach) {
  History history = good_history();
  case_of(history, kCrash).resources["leaked_handles"] = 1;
  const Json json = fault_json(judged(history));
  EXPECT_EQ(json["schema"], "nano-mooncake/fault-budget/v1");
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["fault_cases"], 3 * kGoodRuns);
  const Json& breach = json["invariants"][0]["breaches"][0];
  EXPECT_EQ(breach["run_id"], history.runs.back().run_id);
  EXPECT_EQ(breach["case"], kCrash.name());
  EXPECT_EQ(breach["missing_evidence"], false);
}

}  // namespace
}  // namespace nmc::evidence
