// The questions that the experiments answer: what the cache brings, and what separate workers bring, case by case.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "evidence/cohort.h"
#include "evidence/paired.h"
#include "evidence/phases.h"

namespace nmc::evidence {

// What a decision lacks.
enum class Gap { kNone, kControl, kRuns, kSpread, kAnswers };

struct Decision {
  // "cache": pd-split against pd-global; "pd-split": monolithic against pd-split; "frontier": monolithic, which has no
  // hand-over to pay for, against pd-global.
  std::string question;
  std::string metric;  // "e2e_ms"
  CaseKey control, treatment;
  std::string workload_digest;
  Effect effect;
  Outcome outcome = Outcome::kInsufficient;
  Gap gap = Gap::kNone;
  std::string reason;             // of insufficient evidence
  std::vector<std::string> runs;  // that it rests on
  // Means over the pairs, in ms and tokens of one request: what explains the effect. The effect itself is measured.
  double saved_tokens = 0, prefill_saved_ms = 0, restore_ms = 0, transfer_ms = 0, net_ms = 0;
};

// What a case is held against in the decision view: pd-global against pd-split, pd-split against monolithic, which is
// against nothing.
std::optional<CaseKey> control_of(const CaseKey& treatment);

struct DecisionOptions {
  std::string metric = "e2e_ms";
  double margin = 0.05;
};

// Each in the order of questions and case names. A case whose workload has another digest than in the newest run that
// has it doesn't count.
std::vector<Decision> decide(const Cohort& cohort, const DecisionOptions& options);  // cache, pd-split
std::vector<Decision> frontier(const Cohort& cohort, const DecisionOptions& options);

Json decision_json(const Decision& decision, double margin);

// For each decision without enough evidence what it lacks, and the command that supplies it.
struct MissingEvidence {
  Decision decision;
  std::string missing, command;
};
std::vector<MissingEvidence> missing_evidence(const Cohort& cohort, const std::vector<Decision>& decisions,
                                              const DecisionOptions& options, const std::string& index);
Json missing_json(const std::vector<MissingEvidence>& missing);

// The digest of each case's workload in the newest run that has it done.
std::map<CaseKey, std::string> reference_workloads(const Cohort& cohort);

}  // namespace nmc::evidence
