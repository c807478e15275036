// A history that every gate passes, for tests that change one thing in it.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "evidence/acceptance.h"
#include "evidence/test_support.h"

namespace nmc::evidence {

inline constexpr std::size_t kGoodRuns = 3, kGoodRequests = 50;

inline CaseKey key_of(std::string mode, std::string fault = "none") {
  const bool alone = mode == "monolithic";
  return {"high-reuse", std::move(mode), alone ? "none" : "shm", alone ? "1" : "1p1d", "cold", std::move(fault)};
}

// Times grow from request to request, so that percentiles differ.
inline CaseRow good_case(const CaseKey& key) {
  std::vector<double> ttft_ms;
  for (std::size_t i = 0; i < kGoodRequests; ++i) ttft_ms.push_back(10 + static_cast<double>(i));
  CaseRow row = make_case(key, ttft_ms);
  if (key.fault == "none") return row;
  row.fault = FaultEvidence{"handover.span=exit@1", "prefill-0", 1, "right", true};
  if (key.fault == "corrupt-entry") {
    row.resources["quarantined_entries"] = row.resources["quarantined_expected"] = 2;
  } else if (key.fault == "timeout") {
    row.fault = FaultEvidence{"", "server", 0, "deadline", true};
    row.requests[3].outcome = "deadline";
  }
  return row;
}

inline ExperimentReport good_report(int number) {
  return make_report(number,
                     {good_case(key_of("monolithic")), good_case(key_of("pd-split")), good_case(key_of("pd-global")),
                      good_case(key_of("pd-global", "crash")), good_case(key_of("pd-global", "corrupt-entry")),
                      good_case(key_of("pd-global", "timeout"))});
}

inline History good_history() {
  History history;
  for (std::size_t number = 1; number <= kGoodRuns; ++number)
    history.runs.push_back(good_report(static_cast<int>(number)));
  return history;
}

// Of the newest run.
inline CaseRow& case_of(History& history, const CaseKey& key) {
  return *std::ranges::find(history.runs.back().cases, key, &CaseRow::key);
}

inline BudgetRule rule_on(const std::string& metric, const std::string& statistic, double limit) {
  return {.id = metric + "-" + statistic,
          .metric = metric,
          .statistic = statistic,
          .selector = {.workload = "", .mode = "pd-global", .transfer = "", .ratio = "", .lifecycle = ""},
          .over = {},
          .limit = limit,
          .calibrated = {}};
}

// ttft_ms p95 of a good history is 57.
inline Budget good_budget() {
  return {.profiles = {{"full", {rule_on("ttft_ms", "p95", 58), rule_on("leaked_handles", "max", 0)}}},
          .calibration = {}};
}

inline PressureOptions good_options() {
  return {.profile = "full", .index = "results/index.jsonl", .budget_path = "docs/pressure_budgets.json"};
}

}  // namespace nmc::evidence
