// The verdict on a set of runs: accepted, blocked, or insufficient evidence, with one line a gate.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "evidence/budget.h"
#include "evidence/cohort.h"
#include "evidence/fault_budget.h"
#include "evidence/verdict.h"

namespace nmc::evidence {

struct GateLine {
  std::string name;  // "provenance", "determinism", "pressure", "fault", "decision", "parity"
  Verdict verdict = Verdict::kPass;
  bool applies = true;                // false: there is nothing for it to judge, so it doesn't count
  std::string summary;                // in one line
  std::vector<std::string> findings;  // what didn't pass
};

struct Acceptance {
  Verdict verdict = Verdict::kInsufficient;
  std::vector<GateLine> gates;
  std::vector<std::string> runs;
  PressureVerdict pressure;
  FaultVerdict faults;
};

// "accepted", "blocked", "insufficient_evidence".
std::string_view acceptance_name(Verdict verdict);

// One build of a clean, known tree, in Release, on one machine, and every report that the registry names.
GateLine judge_provenance(const Cohort& cohort);
// One seed makes one workload; the same request of it has the same answer in every mode, repeat and run; the counters
// of a case are the same in every repeat and run. A case that was run once shows nothing of the kind.
GateLine judge_determinism(const Cohort& cohort);
// Each question of the suite has both its sides, with the same requests, in each run and repeat. Which side wins is for
// the decision view: a gate that demanded wins would be a reason to look for them.
GateLine judge_pairs(const Cohort& cohort);
GateLine judge_parity(const Cohort& cohort);

Result<Acceptance> judge_acceptance(const Cohort& cohort, const Budget& budget, const PressureOptions& options);
Json acceptance_json(const Acceptance& acceptance);

}  // namespace nmc::evidence
