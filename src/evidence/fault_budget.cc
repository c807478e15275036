#include "evidence/fault_budget.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace nmc::evidence {
namespace {

// What is said of one case: nothing, that it breaks the invariant, or that it can't be told.
struct Finding {
  std::string detail;
  bool missing = false;
};
using Check = std::function<std::optional<Finding>(const ExperimentReport&, const CaseRow&)>;

std::optional<Finding> must_be(const CaseRow& row, const char* resource, std::uint64_t expected) {
  const auto found = row.resources.find(resource);
  if (found == row.resources.end()) return Finding{fmt::format("{} isn't known", resource), true};
  if (found->second == expected) return std::nullopt;
  return Finding{fmt::format("{} {}, expected {}", found->second, resource, expected)};
}

// A server that was killed has nobody to count what it held; what it left on the host is counted from outside.
bool has_inside(const CaseRow& row) { return !row.fault || row.fault->expected != "gone"; }

Check inside(const char* resource) {
  return [resource](const ExperimentReport&, const CaseRow& row) {
    return has_inside(row) ? must_be(row, resource, 0) : std::nullopt;
  };
}

Check outside(const char* resource) {
  return [resource](const ExperimentReport&, const CaseRow& row) { return must_be(row, resource, 0); };
}

std::optional<Finding> check_quarantine(const ExperimentReport&, const CaseRow& row) {
  if (!has_inside(row)) return std::nullopt;
  const auto expected = row.resources.find("quarantined_expected");
  return must_be(row, "quarantined_entries", expected == row.resources.end() ? 0 : expected->second);
}

std::optional<Finding> check_observed(const ExperimentReport&, const CaseRow& row) {
  if (!row.fault) return std::nullopt;
  if (!row.fault->observed) return Finding{"the fault wasn't observed", true};
  if (!row.fault->failpoint.empty() && row.fault->fired == 0)
    return Finding{fmt::format("{} never acted in {}", row.fault->failpoint, row.fault->process), true};
  return std::nullopt;
}

std::optional<Finding> check_endings(const ExperimentReport&, const CaseRow& row) {
  for (const RequestRow& request : row.requests) {
    if (request.endings != 1) return Finding{fmt::format("request {} was told {} ends", request.id, request.endings)};
  }
  return std::nullopt;
}

// The answers of runs without a fault, by model, workload and request.
class Answers {
 public:
  explicit Answers(const Cohort& cohort) {
    cohort.for_each_case([&](const ExperimentReport& run, const CaseRow& row) {
      if (row.key.fault != "none" || !row.done()) return;
      for (const RequestRow& request : row.requests) {
        if (request.outcome == "finished") answers_[key(run, row, request)].insert(request.tokens_digest);
      }
    });
  }

  std::optional<Finding> check(const ExperimentReport& run, const CaseRow& row) const {
    if (!row.fault || !has_inside(row)) return std::nullopt;
    const std::string& expected = row.fault->expected;
    bool occurred = expected == "right";
    for (const RequestRow& request : row.requests) {
      if (expected != "right" && request.outcome == expected) {
        occurred = true;
        continue;
      }
      if (request.outcome != "finished")
        return Finding{fmt::format("request {} ended as {} {}", request.id, request.outcome, request.error)};
      const auto found = answers_.find(key(run, row, request));
      if (found == answers_.end())
        return Finding{fmt::format("no run without a fault has request {} of that workload", request.id), true};
      if (!found->second.contains(request.tokens_digest))
        return Finding{fmt::format("request {} has another answer than without the fault", request.id)};
    }
    if (!occurred) return Finding{fmt::format("no request ended as {}", expected)};
    return std::nullopt;
  }

 private:
  static std::string key(const ExperimentReport& run, const CaseRow& row, const RequestRow& request) {
    return run.provenance.model.digest + row.workload_digest + request.id;
  }
  std::map<std::string, std::set<std::string>> answers_;
};

Invariant judge(std::string name, std::string about, const Cohort& cohort, bool faults_only, const Check& check) {
  Invariant invariant{.name = std::move(name), .about = std::move(about), .breaches = {}};
  cohort.for_each_case([&](const ExperimentReport& run, const CaseRow& row) {
    if (faults_only && row.key.fault == "none") return;
    ++invariant.cases;
    std::optional<Finding> finding;
    if (!row.done())
      finding = Finding{fmt::format("{}: {}", row.status, row.reason), true};
    else
      finding = check(run, row);
    if (!finding) return;
    invariant.verdict = both(invariant.verdict, finding->missing ? Verdict::kInsufficient : Verdict::kFail);
    invariant.breaches.push_back({run.run_id, row.key.name(), finding->detail, row.repeat, finding->missing});
  });
  if (invariant.cases == 0) invariant.verdict = Verdict::kInsufficient;
  return invariant;
}

}  // namespace

FaultVerdict judge_faults(const Cohort& cohort) {
  const Answers answers(cohort);
  const auto right = [&](const ExperimentReport& run, const CaseRow& row) { return answers.check(run, row); };
  FaultVerdict verdict{.verdict = Verdict::kPass, .invariants = {}, .runs = cohort.run_ids()};
  const auto add = [&](const char* name, const char* about, bool faults_only, const Check& check) {
    verdict.invariants.push_back(judge(name, about, cohort, faults_only, check));
    verdict.verdict = both(verdict.verdict, verdict.invariants.back().verdict);
  };
  add("no_leaked_handles", "no block stays pinned for a request that is over", false, inside("leaked_handles"));
  add("no_residual_slots", "no place in a queue or batch stays taken", false, inside("residual_slots"));
  add("no_orphan_processes", "no process outlives its server", false, outside("orphan_processes"));
  add("no_orphan_shm", "no shared memory outlives its server", false, outside("orphan_shm"));
  add("corrupt_entries_quarantined", "as many entries are quarantined as were damaged", false, check_quarantine);
  add("faults_observed", "each fault hit the process it was meant for", true, check_observed);
  add("answered_once", "every request is told one end", false, check_endings);
  add("answered_rightly", "the answers are those without the fault, or the outcome is the expected one", true, right);
  cohort.for_each_case([&](const auto&, const CaseRow& row) { verdict.fault_cases += row.key.fault != "none"; });
  return verdict;
}

Json fault_json(const FaultVerdict& verdict) {
  Json json = {{"schema", "nano-mooncake/fault-budget/v1"},
               {"verdict", verdict_name(verdict.verdict)},
               {"runs", verdict.runs},
               {"fault_cases", verdict.fault_cases},
               {"invariants", Json::array()}};
  for (const Invariant& invariant : verdict.invariants) {
    Json row = {{"name", invariant.name},
                {"about", invariant.about},
                {"verdict", verdict_name(invariant.verdict)},
                {"cases", invariant.cases},
                {"breaches", Json::array()}};
    for (const Invariant::Breach& breach : invariant.breaches) {
      row["breaches"].push_back({{"run_id", breach.run_id},
                                 {"case", breach.case_name},
                                 {"repeat", breach.repeat},
                                 {"detail", breach.detail},
                                 {"missing_evidence", breach.missing}});
    }
    json["invariants"].push_back(std::move(row));
  }
  return json;
}

}  // namespace nmc::evidence
