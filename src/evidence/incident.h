// Why a rule of a pressure budget failed, and how near the others are to their limits. Explanations: the verdict is the
// budget's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "evidence/budget.h"
#include "evidence/phases.h"
#include "evidence/registry.h"

namespace nmc::evidence {

struct Incident {
  RuleVerdict rule;
  std::string phase, resource;        // it is attributed to; the metric's own name where it is no time
  std::string evidence;               // the figures it rests on
  std::string ruled_out;              // the next one, and why it doesn't explain it; or "not ruled out: ..."
  std::vector<std::string> baseline;  // runs it is compared with; none: its stages are only compared with each other
};

// Of each rule that failed. A time's stages are compared with those of runs of the same machine, model, kind of
// evidence and build type that aren't judged with them, where there are some that were asked the same; and the rule is
// measured again as if the stage had not grown. A counter is compared with another that would tell of another cause.
std::vector<Incident> explain_failures(const History& history, const Cohort& cohort, const PressureVerdict& verdict);
Json incidents_json(const PressureVerdict& verdict, const std::vector<Incident>& incidents);

struct NearMiss {
  RuleVerdict rule;
  double margin = 0;  // how far the value is from its limit, as a part of the limit; below 0: beyond it
  std::vector<std::pair<std::string, double>> values;  // by run, oldest first
  double trend = 0;                                    // the last of them against the first, as a part of the first
  double noise = 0;                                    // their spread as a part of their median
};

// Of each rule whose value is within `near` of its limit, on either side.
std::vector<NearMiss> near_misses(const Cohort& cohort, const PressureVerdict& verdict, double near);
Json near_misses_json(const PressureVerdict& verdict, const std::vector<NearMiss>& found, double near);

}  // namespace nmc::evidence
