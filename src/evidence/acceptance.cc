#include "evidence/acceptance.h"

#include <algorithm>
#include <map>
#include <set>

#include "evidence/decision.h"
#include "evidence/metrics.h"

namespace nmc::evidence {
namespace {

constexpr std::size_t kFindingsMax = 20;  // of a gate; the rest is counted

void note(GateLine& gate, Verdict verdict, std::string finding) {
  gate.verdict = both(gate.verdict, verdict);
  gate.findings.push_back(std::move(finding));
}

// Longer lists help nobody.
GateLine finished(GateLine gate, std::string passed) {
  const std::size_t found = gate.findings.size();
  if (found > kFindingsMax) {
    gate.findings.resize(kFindingsMax);
    gate.findings.push_back(fmt::format("and {} more", found - kFindingsMax));
  }
  gate.summary = found == 0 ? std::move(passed) : fmt::format("{}{}", gate.findings[0], found > 1 ? ", and more" : "");
  return gate;
}

// The counters that one seed decides. What a cancelled request got isn't among its metrics.
std::string counters_of(const RequestRow& request) {
  std::string text = request.outcome + " " + request.cache_source;
  for (const Metric& metric : request_metrics()) {
    if (!metric.is_count || metric.name == "preemptions") continue;
    if (const auto value = request.metric(metric.name)) text += fmt::format(" {}={}", metric.name, *value);
  }
  return text;
}

// What was said first of each thing, and by whom.
struct Sayings {
  std::map<std::string, std::pair<std::string, std::string>> first;
  std::uint64_t compared = 0;

  // Who said otherwise before; "": nobody.
  std::string contradicted(const std::string& key, const std::string& value, const std::string& who) {
    const auto [said, is_new] = first.try_emplace(key, value, who);
    compared += !is_new;
    return said->second.first == value ? "" : said->second.second;
  }
};

// What a workload is made from. Where that is a file of the user's, which may have changed between runs: itself.
std::string origin_of(const ExperimentReport& run, const CaseRow& row) {
  std::string text = row.key.workload;
  for (const char* flag : {"seed", "max_new_tokens"}) {
    if (run.config.contains(flag)) text += fmt::format(" {}={}", flag, dump_json(run.config[flag]));
  }
  const bool built_in = !run.config.contains("workloads") || run.config["workloads"].is_null();
  return built_in ? text : text + row.workload_digest;
}

}  // namespace

std::string_view acceptance_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass: return "accepted";
    case Verdict::kFail: return "blocked";
    case Verdict::kInsufficient: break;
  }
  return "insufficient_evidence";
}

GateLine judge_provenance(const Cohort& cohort) {
  GateLine gate{.name = "provenance", .findings = {}};
  const auto missing = [&](std::string finding) { note(gate, Verdict::kInsufficient, std::move(finding)); };
  for (const ExperimentReport* run : cohort.runs) {
    const BuildIdentity& build = run->provenance.build;
    if (build.dirty) missing(fmt::format("run {}: the tree had changes that no commit has", run->run_id));
    if (build.source_digest == kUnknown) missing(fmt::format("run {}: the source isn't known", run->run_id));
    if (build.build_type != "Release")
      missing(fmt::format("run {}: a {} build, expected Release", run->run_id, build.build_type));
    if (run->provenance.model.digest == kUnknown) missing(fmt::format("run {}: the model isn't known", run->run_id));
    if (run->provenance.machine.fingerprint == kUnknown)
      missing(fmt::format("run {}: the machine isn't known", run->run_id));
    if (run->provenance.evidence_tier == kTierSimulation)
      missing(fmt::format("run {}: its figures are simulated", run->run_id));
  }
  for (const Cohort::Apart& apart : cohort.apart)
    missing(fmt::format("run {} can't be judged with the others: {}", apart.run_id, apart.why));
  for (const History::LeftOut& left : cohort.left_out)
    missing(fmt::format("run {}: its report can't be used: {}", left.run_id, left.why));
  const BuildIdentity& build = cohort.runs.back()->provenance.build;
  return finished(std::move(gate), fmt::format("{} runs of {} on one machine", cohort.runs.size(), build.commit));
}

GateLine judge_determinism(const Cohort& cohort) {
  GateLine gate{.name = "determinism", .findings = {}};
  Sayings workloads, answers, counters;
  std::map<std::pair<std::string, std::string>, std::uint64_t> times_run;  // by name and workload
  const auto compare = [&](Sayings& sayings, const std::string& key, const std::string& value, const std::string& who,
                           const std::string& what) {
    const std::string other = sayings.contradicted(key, value, who);
    if (!other.empty()) note(gate, Verdict::kFail, fmt::format("{}: {} differs from that of {}", who, what, other));
  };
  cohort.for_each_case([&](const ExperimentReport& run, const CaseRow& row) {
    if (!row.done() || row.key.fault != "none") return;
    const std::string who = fmt::format("{} (run {}, repeat {})", row.key.name(), run.run_id, row.repeat);
    ++times_run[{row.key.name(), row.workload_digest}];
    compare(workloads, origin_of(run, row), row.workload_digest, who, "the workload");
    for (const RequestRow& request : row.requests) {
      if (request.outcome == "finished")
        compare(answers, row.workload_digest + request.id, request.tokens_digest, who, "the answer to " + request.id);
      compare(counters, row.workload_digest + row.key.name() + request.id, counters_of(request), who,
              "a counter of " + request.id);
    }
  });
  for (const auto& [what, times] : times_run) {
    if (times == 1) note(gate, Verdict::kInsufficient, fmt::format("{} was run once", what.first));
  }
  if (answers.compared == 0) note(gate, Verdict::kInsufficient, "no request was answered twice");
  return finished(std::move(gate),
                  fmt::format("{} answers and {} sets of counters, each equal to the first of its kind",
                              answers.compared, counters.compared));
}

GateLine judge_pairs(const Cohort& cohort) {
  GateLine gate{.name = "decision", .findings = {}};
  std::uint64_t pairs = 0;
  for (const ExperimentReport* run : cohort.runs) {
    const auto check = [&](const CaseRow& row, const CaseKey& control, const char* question) {
      const CaseRow* const found = run->find_done(control, row.repeat);
      const std::string who =
          fmt::format("{}: {} (run {}, repeat {})", question, row.key.name(), run->run_id, row.repeat);
      if (found == nullptr) {
        note(gate, Verdict::kInsufficient, fmt::format("{} has no control {}", who, control.name()));
        return;
      }
      std::set<std::string> ours, theirs;
      for (const RequestRow& request : row.requests) ours.insert(request.id);
      for (const RequestRow& request : found->requests) theirs.insert(request.id);
      if (ours != theirs || row.workload_digest != found->workload_digest)
        note(gate, Verdict::kInsufficient, fmt::format("{} and its control weren't asked the same", who));
      ++pairs;
    };
    for (const CaseRow& row : run->cases) {
      if (!row.done() || row.key.fault != "none") continue;
      const std::optional<CaseKey> control = control_of(row.key);
      // Faults bring cases of their own along, at ratios that nothing is compared at.
      if (row.key.mode == "pd-global" && row.key.ratio == "1p1d")
        check(row, *control, "cache");
      else if (row.key.mode == "pd-split")
        check(row, *control, "pd-split");
    }
  }
  if (pairs == 0 && gate.findings.empty()) note(gate, Verdict::kInsufficient, "nothing is compared with anything");
  return finished(std::move(gate),
                  fmt::format("{} comparisons have both their sides; the decision view says who wins", pairs));
}

GateLine judge_parity(const Cohort& cohort) {
  GateLine gate{.name = "parity", .findings = {}};
  std::uint64_t compared = 0;
  for (const ExperimentReport* run : cohort.runs) {
    for (const ParityRow& row : run->parity) {
      compared += row.status != "not_available";
      if (row.status == "different")
        note(gate, Verdict::kFail, fmt::format("run {}: {}: {}", run->run_id, row.against, row.detail));
    }
  }
  if (compared > 0) return finished(std::move(gate), fmt::format("{} comparisons, none different", compared));
  const bool checkpoint = cohort.runs.back()->provenance.evidence_tier == kTierCheckpoint;
  gate.applies = checkpoint;
  if (checkpoint) note(gate, Verdict::kInsufficient, "no computation to compare with");
  return finished(std::move(gate), "random weights: determinism compares the modes with each other");
}

namespace {

GateLine pressure_line(const PressureVerdict& verdict) {
  GateLine gate{.name = "pressure", .verdict = verdict.verdict, .findings = {}};
  std::uint64_t passed = 0;
  for (const RuleVerdict& one : verdict.rules) {
    passed += one.verdict == Verdict::kPass;
    if (one.verdict != Verdict::kPass)
      gate.findings.push_back(fmt::format("{}: {}: {}", one.rule.id, verdict_name(one.verdict), one.reason));
  }
  if (!verdict.command.empty()) gate.findings.insert(gate.findings.begin(), "run: " + verdict.command);
  return finished(std::move(gate),
                  fmt::format("{} of {} rules of profile {} pass", passed, verdict.rules.size(), verdict.profile));
}

GateLine fault_line(const FaultVerdict& verdict) {
  GateLine gate{.name = "fault", .verdict = verdict.verdict, .findings = {}};
  for (const Invariant& invariant : verdict.invariants) {
    if (invariant.verdict == Verdict::kPass) continue;
    std::string finding = fmt::format("{}: {}", invariant.name, verdict_name(invariant.verdict));
    if (!invariant.breaches.empty())
      finding += fmt::format(": {}: {}", invariant.breaches[0].case_name, invariant.breaches[0].detail);
    gate.findings.push_back(std::move(finding));
  }
  return finished(std::move(gate), fmt::format("{} invariants hold, over {} cases with a fault",
                                               verdict.invariants.size(), verdict.fault_cases));
}

}  // namespace

Result<Acceptance> judge_acceptance(const Cohort& cohort, const Budget& budget, const PressureOptions& options) {
  Acceptance acceptance{
      .verdict = Verdict::kPass, .gates = {}, .runs = cohort.run_ids(), .faults = judge_faults(cohort)};
  NMC_ASSIGN_OR_RETURN(acceptance.pressure, judge_pressure(cohort, budget, options));
  acceptance.gates = {judge_provenance(cohort),      judge_determinism(cohort), pressure_line(acceptance.pressure),
                      fault_line(acceptance.faults), judge_pairs(cohort),       judge_parity(cohort)};
  for (const GateLine& gate : acceptance.gates) {
    if (gate.applies) acceptance.verdict = both(acceptance.verdict, gate.verdict);
  }
  return acceptance;
}

Json acceptance_json(const Acceptance& acceptance) {
  Json json = {{"schema", "nano-mooncake/acceptance/v1"},
               {"verdict", acceptance_name(acceptance.verdict)},
               {"runs", acceptance.runs},
               {"profile", acceptance.pressure.profile},
               {"command", acceptance.pressure.command.empty() ? Json(nullptr) : Json(acceptance.pressure.command)},
               {"gates", Json::array()}};
  for (const GateLine& gate : acceptance.gates) {
    json["gates"].push_back({{"gate", gate.name},
                             {"verdict", gate.applies ? std::string(verdict_name(gate.verdict)) : "not_applicable"},
                             {"summary", gate.summary},
                             {"findings", gate.findings}});
  }
  json["pressure"] = pressure_json(acceptance.pressure);
  json["fault"] = fault_json(acceptance.faults);
  return json;
}

}  // namespace nmc::evidence
