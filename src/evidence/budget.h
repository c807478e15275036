// Pressure budgets: limits on what the experiments measured, by profile (docs/pressure_budgets.json). A limit on a time
// is a generous one for any machine until it is calibrated from a machine's own history; counters have the same limit
// everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "evidence/cohort.h"
#include "evidence/report.h"
#include "evidence/verdict.h"

namespace nmc::evidence {

inline constexpr std::string_view kBudgetSchema = "nano-mooncake/pressure-budgets/v1";

// Cases by the words of their keys; "" takes any. Faults are never among them.
struct Selector {
  std::string workload, mode, transfer, ratio, lifecycle;

  bool takes(const CaseKey& key) const;
  bool operator==(const Selector&) const = default;
};

struct BudgetRule {
  std::string id;
  // A metric of requests; a resource of cases; "rejected" or "finished" (of a case's requests), "worker_utilization".
  std::string metric;
  std::string statistic;  // "p50", "p95", "p99", "mean", "max", "sum"
  Selector selector;
  std::optional<Selector> over;  // the limit is on the quotient of the two statistics
  double limit = 0;
  bool at_least = false;  // else at most
  std::uint64_t min_samples = 1;
  double slack = 0;  // added to a calibrated limit, in the metric's unit: noise that is no part of the value
  struct Calibrated {
    double limit = 0;
    std::vector<std::pair<std::string, double>> runs;  // their ids and what each had
    bool operator==(const Calibrated&) const = default;
  };
  std::optional<Calibrated> calibrated;

  // A time by itself, which says nothing without a machine.
  bool is_machines_own() const;
  double effective_limit() const { return calibrated ? calibrated->limit : limit; }
  bool operator==(const BudgetRule&) const = default;
};

struct Budget {
  std::map<std::string, std::vector<BudgetRule>> profiles;
  struct Calibration {
    std::string machine;  // fingerprint
    std::string model_digest, evidence_tier, build_type;
    double margin = 0;
    std::vector<std::string> runs;
    bool operator==(const Calibration&) const = default;
  };
  std::optional<Calibration> calibration;

  bool operator==(const Budget&) const = default;
};

// Refuses members that it doesn't know: a misspelt word of a selector would widen a rule.
Result<Budget> parse_budget(const Json& json, std::string_view name);
Result<Budget> read_budget(const Path& path);
Json budget_json(const Budget& budget);
// kInvalidArgument names those there are.
Result<std::span<const BudgetRule>> rules_of(const Budget& budget, const std::string& profile);

// A rule's statistic over `runs`; nothing where there are too few samples, for a percentile fewer than it can be told
// from, or no case that the selector takes. Times and counters are those of finished requests.
struct Measured {
  std::optional<double> value;
  std::uint64_t samples = 0;
  std::string why;      // there is no value
  std::string missing;  // what the value lacks: a case that wasn't done, requests that failed; "": it is whole
};
Measured measure(const BudgetRule& rule, std::span<const ExperimentReport* const> runs);

struct RuleVerdict {
  BudgetRule rule;
  Verdict verdict = Verdict::kInsufficient;
  Measured measured;
  std::string reason;
};

struct PressureVerdict {
  std::string profile;
  Verdict verdict = Verdict::kInsufficient;
  std::vector<RuleVerdict> rules;
  std::vector<std::string> runs;
  std::vector<Cohort::Apart> apart;
  std::vector<std::string> caveats;
  std::string command;  // that supplies a calibration where one is required and there is none; "" otherwise
};

struct PressureOptions {
  std::string profile = "full";
  bool require_calibrated = false;  // a limit on a time counts only if it is of this machine
  std::string index, budget_path;   // for the command that is named
};

// Judges the runs of the cohort together. A value within its limit that lacks something is insufficient evidence; one
// beyond it fails whatever it lacks.
Result<PressureVerdict> judge_pressure(const Cohort& cohort, const Budget& budget, const PressureOptions& options);
Json pressure_json(const PressureVerdict& verdict);

// Limits of times from the cohort's runs, as of runs_of_machine(): the worst run's value, the margin and the slack on
// top. kNotFound: fewer than `min_runs` runs have a rule's value, whole, with the rule's id. Rules of other profiles
// lose the limits that another calibration gave them.
Result<Budget> calibrate(const Budget& budget, const std::string& profile, const Cohort& cohort, double margin,
                         std::uint64_t min_runs);

// `budget` with the calibrated limits of `calibrated`, of those rules that are the same in both: what was calibrated
// earlier, or edited by hand since, can't change what is asked.
Budget with_calibration(Budget budget, const Budget& calibrated);

// Where a calibrated budget is kept unless somebody says otherwise.
inline constexpr std::string_view kCalibratedBudget = "results/calibrated_pressure_budgets.json";
std::string calibration_command(const PressureOptions& options);

}  // namespace nmc::evidence
