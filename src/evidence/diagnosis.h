// Which requests got slower than in an earlier run, and in which stage. An explanation: no verdict rests on it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "evidence/phases.h"
#include "evidence/registry.h"

namespace nmc::evidence {

struct Regression {
  CaseKey key;
  std::string request;
  double before_ms = 0, now_ms = 0;  // e2e_ms, medians over repeats and, before, over runs
  double noise_ms = 0;               // the larger of the two spreads
  std::array<double, kPhases.size()> growth_ms{};
  std::size_t phase = 0;  // that grew most

  double share() const { return growth_ms[phase] / (now_ms - before_ms); }  // of the growth that it carries
};

struct Diagnosis {
  std::string run;
  std::vector<std::string> baseline;  // ids
  std::vector<Regression> regressions;
  std::uint64_t compared = 0;        // requests in both
  std::uint64_t without_noise = 0;   // those measured only once before: whether they grew can't be told
  std::vector<std::string> caveats;  // the builds differ, a workload differs
};

// `run_id` "": the newest; `baseline_id` "": the newest run before it of the same machine, model, kind of evidence and
// build type, with the others of that run's build. Cases without a fault; a request is listed when it grew by more than
// the noise and more than a twentieth. kNotFound: there is no such run, or nothing to compare it with;
// kInvalidArgument: the two can't be compared, and why.
Result<Diagnosis> diagnose(const History& history, std::string_view run_id, std::string_view baseline_id);
Json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace nmc::evidence
