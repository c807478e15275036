// Runs that are judged together: those of one machine, one model, one kind of evidence and one build.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "evidence/registry.h"
#include "evidence/report.h"

namespace nmc::evidence {

struct Cohort {
  std::vector<const ExperimentReport*> runs;  // by time of their end; the last one decides which others belong
  struct Apart {
    std::string run_id, why;  // "machine: 1a2b..., expected 3c4d..."
  };
  std::vector<Apart> apart;
  std::vector<History::LeftOut> left_out;  // the history's

  std::vector<std::string> run_ids() const;
  // Of every case of every run.
  void for_each_case(const std::function<void(const ExperimentReport&, const CaseRow&)>& visit) const;
};

// Around `run_id`, "" being the newest run. Runs that were skipped don't count. kNotFound: there is no such run, or
// none at all. The history outlives the cohort.
Result<Cohort> cohort_of(const History& history, std::string_view run_id = "");

// Around the newest run, builds of other sources among them: what a machine is like shows over many builds.
Result<Cohort> runs_of_machine(const History& history);

}  // namespace nmc::evidence
