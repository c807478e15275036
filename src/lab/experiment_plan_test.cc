#include "lab/experiment_plan.h"

#include <gmock/gmock.h>

#include <set>

#include "evidence/decision.h"
#include "lab/experiment_faults.h"

namespace nmc::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<WorkloadSpec> workloads() { return *parse_workloads(built_in_workloads(), "built in"); }

std::vector<std::string> names(const PlanOptions& options) {
  std::vector<std::string> found;
  const std::vector<PlannedCase> planned = *plan_cases(options, workloads());
  for (const PlannedCase& one : planned) found.push_back(one.key.name());
  return found;
}

TEST(ExperimentPlan, TheDefaultSuiteHasEveryModeRatioLifecycleAndFault) {
  std::set<std::string> modes, ratios, lifecycles, faults, used;
  const std::vector<PlannedCase> planned = *plan_cases({}, workloads());
  for (const PlannedCase& one : planned) {
    modes.insert(one.key.mode);
    ratios.insert(one.key.ratio);
    lifecycles.insert(one.key.lifecycle);
    faults.insert(one.key.fault);
    used.insert(one.key.workload);
  }
  EXPECT_THAT(modes, ElementsAre("monolithic", "pd-global", "pd-split"));
  EXPECT_THAT(ratios, ElementsAre("1", "1p1d", "1p2d", "2p1d", "2p2d"));
  EXPECT_THAT(lifecycles, ElementsAre("cold", "dram-evict", "warm"));
  EXPECT_EQ(faults.size(), fault_specs().size() + 1);
  EXPECT_EQ(used.size(), workloads().size());
}

TEST(ExperimentPlan, EveryCaseIsPlannedOnceARepeat) {
  for (const std::string_view suite : kSuites) {
    const std::vector<std::string> found = names({.suite = std::string(suite)});
    EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size()) << suite;
  }
}

// Or no acceptance run of the suite could pass.
TEST(ExperimentPlan, WhatASuiteComparesHasItsOtherSide) {
  for (const std::string_view suite : kSuites) {
    const std::vector<std::string> all = names({.suite = std::string(suite)});
    const std::vector<PlannedCase> planned = *plan_cases({.suite = std::string(suite)}, workloads());
    for (const PlannedCase& one : planned) {
      if (one.key.mode == "monolithic" || one.key.ratio != "1p1d" || one.key.fault != "none") continue;
      const std::optional<evidence::CaseKey> control = evidence::control_of(one.key);
      EXPECT_THAT(all, ::testing::Contains(control->name())) << suite << " has " << one.key.name();
    }
  }
}

TEST(ExperimentPlan, EveryOtherRepeatRunsBackwards) {
  const PlanOptions options{.workloads = {"low-reuse"}, .modes = {"monolithic", "pd-split"}, .repeats = 2};
  EXPECT_THAT(names(options),
              ElementsAre("low-reuse/monolithic/none/1/cold/none", "low-reuse/pd-split/shm/1p1d/cold/none",
                          "low-reuse/pd-split/shm/1p1d/cold/none", "low-reuse/monolithic/none/1/cold/none"));
}

TEST(ExperimentPlan, FlagsMakeAllCombinationsOfWhatTheyList) {
  const PlanOptions options{
      .workloads = {"high-reuse"}, .modes = {"monolithic", "pd-global"}, .transfers = {"shm", "tcp"}};
  EXPECT_TRUE(options.is_custom());
  EXPECT_THAT(names(options),
              ElementsAre("high-reuse/monolithic/none/1/cold/none", "high-reuse/pd-global/shm/1p1d/cold/none",
                          "high-reuse/pd-global/tcp/1p1d/cold/none"));
}

TEST(ExperimentPlan, AFaultBringsTheCaseWithoutItAlong) {
  EXPECT_THAT(names({.faults = {"corrupt-entry"}}),
              ElementsAre("high-reuse/pd-global/shm/1p1d/dram-evict/none",
                          "high-reuse/pd-global/shm/1p1d/dram-evict/corrupt-entry"));
}

TEST(ExperimentPlan, UnknownNamesAreToldWithTheKnownOnes) {
  const auto refusal = [](const PlanOptions& options) { return plan_cases(options, workloads()).error().message; };
  EXPECT_THAT(refusal({.workloads = {"heigh-reuse"}}),
              HasSubstr("--workload: \"heigh-reuse\": expected one of high-reuse"));
  EXPECT_THAT(refusal({.faults = {"none", "flood"}}), HasSubstr("--fault: \"flood\": expected one of prefill-crash"));
  EXPECT_THAT(refusal({.ratios = {"2p"}}), HasSubstr("--ratio: \"2p\": expected"));
}

TEST(ExperimentPlan, RatiosAreReadStrictly) {
  EXPECT_EQ(parse_ratio("2p1d")->prefill, 2u);
  EXPECT_EQ(parse_ratio("2p12d")->decode, 12u);
  for (const char* text :
       {"", "p", "2p1", "2p1dd", "0p1d", "1p33d", "-1p1d", "1d1p", " 1p1d", "99999999999999999999p1d"})
    EXPECT_FALSE(parse_ratio(text)) << text;
}

}  // namespace
}  // namespace nmc::lab
