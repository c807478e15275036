// What has to hold whatever fails: nothing leaks, nothing damaged is served, every request is answered once and
// rightly, and every fault was really there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "evidence/cohort.h"
#include "evidence/verdict.h"

namespace nmc::evidence {

struct Invariant {
  std::string name;   // "no_leaked_handles"
  std::string about;  // in words
  Verdict verdict = Verdict::kPass;
  std::uint64_t cases = 0;  // that were judged
  struct Breach {
    std::string run_id, case_name, detail;
    std::uint64_t repeat = 0;
    bool missing = false;  // evidence is, rather than that it was found broken
  };
  std::vector<Breach> breaches;
};

struct FaultVerdict {
  Verdict verdict = Verdict::kInsufficient;
  std::vector<Invariant> invariants;
  std::vector<std::string> runs;
  std::uint64_t fault_cases = 0;
};

// Over all cases of the cohort's runs. Without a single fault case, insufficient.
FaultVerdict judge_faults(const Cohort& cohort);
Json fault_json(const FaultVerdict& verdict);

}  // namespace nmc::evidence
