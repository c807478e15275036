#include "evidence/budget.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PressureVerdict judged(const History& history, const Budget& budget, const PressureOptions& options = good_options()) {
  return *judge_pressure(*cohort_of(history), budget, options);
}

// Of the only rule, or the first.
RuleVerdict judged(const History& history, const BudgetRule& rule) {
  return judged(history, Budget{.profiles = {{"full", {rule}}}, .calibration = {}}).rules[0];
}

TEST(PressureBudget, PoolsRequestsOverRunsAndJudgesByTheLimit) {
  const History history = good_history();
  const RuleVerdict passed = judged(history, rule_on("ttft_ms", "p95", 57));
  EXPECT_EQ(passed.verdict, Verdict::kPass);
  EXPECT_EQ(passed.measured.value, 57);
  EXPECT_EQ(passed.measured.samples, kGoodRuns * kGoodRequests);
  const RuleVerdict failed = judged(history, rule_on("ttft_ms", "p95", 56.999));
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_EQ(failed.reason, "57, expected at most 56.999");
}

TEST(PressureBudget, EachStatisticIsOfTheSelectedCasesOnly) {
  History history = good_history();
  for (RequestRow& request : case_of(history, key_of("monolithic")).requests) request.metrics["ttft_ms"] = 1e6;
  EXPECT_EQ(judged(history, rule_on("ttft_ms", "max", 1)).measured.value, 59);
  EXPECT_EQ(judged(history, rule_on("ttft_ms", "mean", 1)).measured.value, 34.5);
  EXPECT_EQ(judged(history, rule_on("ttft_ms", "p50", 1)).measured.value, 34);
  EXPECT_EQ(judged(history, rule_on("computed_tokens", "sum", 1)).measured.value, 64.0 * kGoodRuns * kGoodRequests);
  BudgetRule alone = rule_on("ttft_ms", "max", 1);
  alone.selector.mode = "monolithic";
  EXPECT_EQ(judged(history, alone).measured.value, 1e6);
}

TEST(PressureBudget, FaultsAreNeverAmongTheCases) {
  History history = good_history();
  case_of(history, key_of("pd-global", "crash")).requests[0].metrics["ttft_ms"] = 1e6;
  EXPECT_EQ(judged(history, rule_on("ttft_ms", "max", 1)).measured.value, 59);
}

TEST(PressureBudget, AtLeastFailsBelow) {
  BudgetRule rule = rule_on("finished", "mean", 50);
  rule.at_least = true;
  EXPECT_EQ(judged(good_history(), rule).verdict, Verdict::kPass);
  History history = good_history();
  case_of(history, key_of("pd-global")).requests[0].outcome = "rejected";
  EXPECT_EQ(judged(history, rule).verdict, Verdict::kFail);
}

TEST(PressureBudget, AQuotientComparesTwoKindsOfCases) {
  History history = good_history();
  for (ExperimentReport& run : history.runs) {
    for (CaseRow& row : run.cases) {
      for (RequestRow& request : row.requests)
        request.metrics["computed_tokens"] = row.key.mode == "pd-split" ? 64 : 16;
    }
  }
  BudgetRule rule = rule_on("computed_tokens", "mean", 0.25);
  rule.over = Selector{.workload = "", .mode = "pd-split", .transfer = "", .ratio = "", .lifecycle = ""};
  EXPECT_EQ(judged(history, rule).verdict, Verdict::kPass);
  rule.limit = 0.24;
  EXPECT_EQ(judged(history, rule).verdict, Verdict::kFail);
  rule.limit = 0.25;
  case_of(history, key_of("pd-split")).status = "skipped";
  EXPECT_THAT(judged(history, rule).reason, HasSubstr("high-reuse/pd-split/shm/1p1d/cold/none")) << "half of one side";
  rule.over->mode = "pd";
  EXPECT_EQ(judged(history, rule).verdict, Verdict::kInsufficient);
}

TEST(PressureBudget, TooFewSamplesAreInsufficientWhateverTheirValue) {
  BudgetRule rule = rule_on("ttft_ms", "mean", 1e6);
  rule.min_samples = kGoodRuns * kGoodRequests;
  EXPECT_EQ(judged(good_history(), rule).verdict, Verdict::kPass);
  ++rule.min_samples;
  const RuleVerdict few = judged(good_history(), rule);
  EXPECT_EQ(few.verdict, Verdict::kInsufficient);
  EXPECT_EQ(few.reason, "150 samples, 151 needed");
  EXPECT_EQ(judged(good_history(), rule_on("ttft_ms", "p99", 1e6)).reason, "150 samples are too few for a p99");
  rule.selector.workload = "none-such";
  EXPECT_EQ(judged(good_history(), rule).reason, "no case of that kind was run");
}

TEST(PressureBudget, ACaseThatWasNotRunIsMissedAndAFailureOutweighsIt) {
  History history = good_history();
  CaseRow& row = case_of(history, key_of("pd-global"));
  row.status = "failed";
  row.reason = "no memory";
  row.requests.clear();
  const RuleVerdict missed = judged(history, rule_on("ttft_ms", "mean", 48));
  EXPECT_EQ(missed.verdict, Verdict::kInsufficient);
  EXPECT_THAT(missed.reason, HasSubstr("failed: no memory"));
  EXPECT_EQ(judged(history, rule_on("ttft_ms", "mean", 5)).verdict, Verdict::kFail);
}

TEST(PressureBudget, RequestsThatFailedDoNotMakeTimesBetter) {
  History history = good_history();
  RequestRow& slowest = case_of(history, key_of("pd-global")).requests.back();
  slowest.outcome = "failed";
  const RuleVerdict lost = judged(history, rule_on("ttft_ms", "mean", 48));
  EXPECT_EQ(lost.verdict, Verdict::kInsufficient);
  EXPECT_THAT(lost.reason, HasSubstr("1 of 50 requests didn't finish"));
  EXPECT_EQ(lost.measured.samples, kGoodRuns * kGoodRequests - 1);
}

TEST(PressureBudget, AResourceThatIsNotKnownOfOneCaseIsMissed) {
  History history = good_history();
  case_of(history, key_of("pd-global")).resources.erase("leaked_handles");
  const RuleVerdict unknown = judged(history, rule_on("leaked_handles", "max", 0));
  EXPECT_EQ(unknown.verdict, Verdict::kInsufficient);
  EXPECT_THAT(unknown.reason, HasSubstr("leaked_handles isn't known"));
}

TEST(PressureBudget, TheWholeFailsWithOneAndPassesWithAll) {
  Budget budget = good_budget();
  EXPECT_EQ(judged(good_history(), budget).verdict, Verdict::kPass);
  budget.profiles["full"].push_back(rule_on("ttft_ms", "p99", 1e6));
  EXPECT_EQ(judged(good_history(), budget).verdict, Verdict::kInsufficient);
  budget.profiles["full"].push_back(rule_on("ttft_ms", "mean", 1));
  EXPECT_EQ(judged(good_history(), budget).verdict, Verdict::kFail);
  budget.profiles["full"].clear();
  EXPECT_EQ(judged(good_history(), budget).verdict, Verdict::kInsufficient) << "no rule, no pass";
}

TEST(PressureBudget, RunsOfOtherMachinesAndBuildsAreToldApart) {
  History history = good_history();
  history.runs[0].provenance.machine.fingerprint = sha256("another").hex();
  history.runs[1].provenance.build.source_digest = sha256("another").hex();
  const PressureVerdict verdict = judged(history, Budget{.profiles = {{"full", {rule_on("ttft_ms", "mean", 48)}}}});
  EXPECT_THAT(verdict.runs, ElementsAre(history.runs[2].run_id));
  ASSERT_THAT(verdict.apart, SizeIs(2));
  EXPECT_THAT(verdict.apart[0].why, HasSubstr("machine: "));
  EXPECT_THAT(verdict.apart[1].why, HasSubstr("source: "));
  EXPECT_EQ(verdict.rules[0].measured.samples, kGoodRequests);
}

// A budget whose times are limited by a run's mean rather than by a percentile that one run can't tell.
Budget mean_budget() {
  return {.profiles = {{"full", {rule_on("ttft_ms", "mean", 5000), rule_on("leaked_handles", "max", 0)}},
                       {"smoke", {rule_on("ttft_ms", "mean", 5000)}}},
          .calibration = {}};
}

Budget calibrated_on(const History& history) {
  return *calibrate(mean_budget(), "full", *runs_of_machine(history), 0.25, 2);
}

PressureOptions strict() {
  PressureOptions options = good_options();
  options.require_calibrated = true;
  return options;
}

TEST(Calibration, WithoutOneTimesAreInsufficientAndTheCommandIsNamed) {
  const PressureVerdict verdict = judged(good_history(), mean_budget(), strict());
  EXPECT_EQ(verdict.verdict, Verdict::kInsufficient);
  EXPECT_EQ(verdict.rules[0].verdict, Verdict::kInsufficient);
  EXPECT_EQ(verdict.rules[1].verdict, Verdict::kPass) << "a counter needs no machine";
  EXPECT_EQ(verdict.command,
            "nano-mooncake pressure-budget --index results/index.jsonl --budget docs/pressure_budgets.json --profile "
            "full --calibrate --output results/calibrated_pressure_budgets.json");
}

TEST(Calibration, TakesTheWorstRunAndTheMarginAndThenJudges) {
  History history = good_history();
  for (RequestRow& request : case_of(history, key_of("pd-global")).requests) request.metrics["ttft_ms"] += 10;
  const Budget calibrated = calibrated_on(history);
  const BudgetRule& rule = calibrated.profiles.at("full")[0];
  EXPECT_EQ(rule.effective_limit(), 44.5 * 1.25);
  EXPECT_EQ(rule.limit, 5000) << "the general limit stays beside it";
  EXPECT_THAT(rule.calibrated->runs, SizeIs(kGoodRuns));
  EXPECT_EQ(rule.calibrated->runs[0], std::pair(history.runs[0].run_id, 34.5));
  EXPECT_FALSE(calibrated.profiles.at("full")[1].calibrated) << "a counter keeps its limit";
  EXPECT_EQ(judged(history, calibrated, strict()).verdict, Verdict::kPass);
  for (ExperimentReport& run : history.runs) {
    for (RequestRow& request : run.cases[2].requests) request.metrics["ttft_ms"] += 20;
  }
  EXPECT_EQ(judged(history, calibrated, strict()).verdict, Verdict::kFail);
  EXPECT_EQ(judged(history, mean_budget()).verdict, Verdict::kPass) << "the general limit is generous";
}

TEST(Calibration, OfAtLeastTakesTheLeast) {
  Budget budget = mean_budget();
  BudgetRule& rule = budget.profiles["full"][0];
  rule.at_least = true;
  EXPECT_EQ(calibrate(budget, "full", *runs_of_machine(good_history()), 0.25, 2)->profiles["full"][0].calibrated->limit,
            27.6);
}

TEST(Calibration, SlackIsAddedWhateverTheValue) {
  Budget budget = mean_budget();
  budget.profiles["full"][0].slack = 5;
  const auto limit = [&] {
    return calibrate(budget, "full", *runs_of_machine(good_history()), 0.25, 2)->profiles["full"][0].calibrated->limit;
  };
  EXPECT_EQ(limit(), 34.5 * 1.25 + 5);
  budget.profiles["full"][0].at_least = true;
  EXPECT_EQ(limit(), 27.6 - 5);
}

TEST(Calibration, FewerRunsThanAskedForAreNone) {
  History history = good_history();
  history.runs.resize(1);
  const auto few = calibrate(mean_budget(), "full", *runs_of_machine(history), 0.25, 2);
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(few.error().message, "rule ttft_ms-mean: 1 runs on this machine have what it measures, 2 needed");
}

TEST(Calibration, ARunWithFailedRequestsIsNoHistory) {
  History history = good_history();
  history.runs.resize(2);
  case_of(history, key_of("pd-global")).requests[0].outcome = "failed";
  EXPECT_FALSE(calibrate(mean_budget(), "full", *runs_of_machine(history), 0.25, 2));
}

TEST(Calibration, EarlierBuildsAreHistoryAndOtherMachinesAreNot) {
  History history = good_history();
  history.runs[0].provenance.build.source_digest = sha256("another").hex();
  history.runs[1].provenance.machine.fingerprint = sha256("another").hex();
  EXPECT_THAT(calibrated_on(history).calibration->runs, ElementsAre(history.runs[0].run_id, history.runs[2].run_id));
}

TEST(Calibration, CountsOnlyWhereItIsOf) {
  const Budget calibrated = calibrated_on(good_history());
  const auto changed = [&](const std::function<void(Provenance&)>& change) {
    History history = good_history();
    for (ExperimentReport& run : history.runs) change(run.provenance);
    return judged(history, calibrated, strict()).rules[0];
  };
  EXPECT_EQ(changed([](Provenance&) {}).verdict, Verdict::kPass);
  const std::string other = sha256("another").hex();
  for (const RuleVerdict& rule : {changed([&](Provenance& p) { p.machine.fingerprint = other; }),
                                  changed([&](Provenance& p) { p.model.digest = other; }),
                                  changed([&](Provenance& p) { p.evidence_tier = kTierCheckpoint; }),
                                  changed([&](Provenance& p) { p.build.build_type = "Debug"; })}) {
    EXPECT_EQ(rule.verdict, Verdict::kInsufficient);
    EXPECT_EQ(rule.reason, "its limit isn't calibrated for this machine");
  }
  EXPECT_EQ(changed([&](Provenance& p) { p.build.source_digest = other; }).verdict, Verdict::kPass)
      << "a calibration outlives the build, else it could judge none";
}

TEST(Calibration, IsOfOneProfile) {
  Budget both_profiles = calibrated_on(good_history());
  EXPECT_FALSE(both_profiles.profiles["smoke"][0].calibrated);
  both_profiles = *calibrate(both_profiles, "smoke", *runs_of_machine(good_history()), 0.5, 2);
  EXPECT_TRUE(both_profiles.profiles["smoke"][0].calibrated);
  EXPECT_FALSE(both_profiles.profiles["full"][0].calibrated) << "its margin and runs are other ones";
}

TEST(Calibration, SaysWhenItJudgesTheRunsThatItWasMadeFrom) {
  History history = good_history();
  const Budget calibrated = calibrated_on(history);
  EXPECT_THAT(judged(history, calibrated).caveats,
              ElementsAre("3 of the 3 runs judged are among those that the limits were calibrated from"));
  history.runs = {good_report(7), good_report(8)};
  EXPECT_THAT(judged(history, calibrated).caveats, IsEmpty());
}

TEST(Calibration, ChangesNothingThatIsAsked) {
  Budget calibrated = calibrated_on(good_history());
  calibrated.profiles["full"][1].limit = 100;  // by hand: handles may leak
  EXPECT_EQ(with_calibration(mean_budget(), calibrated).profiles["full"][1].limit, 0);
  EXPECT_EQ(with_calibration(mean_budget(), calibrated).profiles["full"][0],
            calibrated_on(good_history()).profiles["full"][0]);
  EXPECT_EQ(with_calibration(calibrated_on(good_history()), mean_budget()), mean_budget())
      << "limits of the budget itself don't outlive its calibration";
  calibrated.profiles["full"][0].selector.mode = "pd-split";  // of another question
  EXPECT_FALSE(with_calibration(mean_budget(), calibrated).profiles["full"][0].calibrated);
}

TEST(BudgetFile, ComesBackAsItWas) {
  Budget budget = calibrated_on(good_history());
  budget.profiles["full"][1].over = Selector{.workload = "w", .mode = "", .transfer = "", .ratio = "", .lifecycle = ""};
  EXPECT_EQ(*parse_budget(*parse_json(dump_json_pretty(budget_json(budget)), "text"), "b"), budget);
}

TEST(BudgetFile, WhatIsNotAsItShouldBeIsNamedByItsPath) {
  const auto changed = [](const char* pointer, Json value) {
    Json json = budget_json(good_budget());
    json[Json::json_pointer(pointer)] = std::move(value);
    const auto budget = parse_budget(json, "b.json");
    return budget ? "taken" : budget.error().message;
  };
  EXPECT_THAT(changed("/profiles/full/1/metric", "tea"),
              HasSubstr("b.json: `profiles.full[1].metric`: expected a metric of requests or of cases, got \"tea\""));
  EXPECT_THAT(changed("/profiles/full/0/statistic", "p90"), HasSubstr("expected one of \"p50\""));
  EXPECT_THAT(changed("/profiles/full/0/direction", "below"), HasSubstr("expected one of \"at_most\" \"at_least\""));
  EXPECT_THAT(changed("/profiles/full/0/limit", "1 s"), HasSubstr("`profiles.full[0].limit`: expected a number"));
  EXPECT_THAT(changed("/profiles/full/0/selector/worklod", "w"),
              HasSubstr("`profiles.full[0].selector.worklod`: expected one of the members workload mode"));
  EXPECT_THAT(changed("/profiles/full/0/slack", -1), HasSubstr("slack`: expected a number of at least 0, got -1"));
  EXPECT_THAT(changed("/profiles/full/0/limt", 3), HasSubstr("`profiles.full[0].limt`: expected one of"));
  EXPECT_THAT(changed("/profiles/full/1/id", "ttft_ms-p95"), HasSubstr("an id that no rule before it has"));
  EXPECT_THAT(changed("/profiles/full/0", 7), HasSubstr("`profiles.full[0]`: expected an object"));
  EXPECT_THAT(changed("/schema", "nano-mooncake/slo/v1"), HasSubstr("expected \"nano-mooncake/pressure-budgets/v1\""));
}

TEST(BudgetFile, AProfileThatIsNotThereIsNamedWithThoseThatAre) {
  EXPECT_EQ(rules_of(mean_budget(), "fulll").error().message,
            "profile fulll: expected one of the budget's: full, smoke");
}

}  // namespace
}  // namespace nmc::evidence
