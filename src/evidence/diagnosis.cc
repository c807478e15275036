#include "evidence/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace nmc::evidence {
namespace {

constexpr double kWorthTelling = 0.05;

const ExperimentReport* find_run(const History& history, std::string_view id) {
  const ExperimentReport* found = nullptr;
  for (const ExperimentReport& run : history.runs) {
    if (run.skipped.empty() && (id.empty() || run.run_id == id)) found = &run;
  }
  return found;
}

std::string incomparable(const Provenance& a, const Provenance& b) {
  if (a.machine.fingerprint != b.machine.fingerprint) return "machine";
  if (a.model.digest != b.model.digest) return "model";
  if (a.evidence_tier != b.evidence_tier) return "kind of evidence";
  return "";
}

Result<const ExperimentReport*> baseline_of(const History& history, const ExperimentReport& run, std::string_view id) {
  if (!id.empty()) {
    const ExperimentReport* const named = find_run(history, id);
    if (named == nullptr) return not_found("the registry names no run {} that can be read", id);
    const std::string differs = incomparable(run.provenance, named->provenance);
    if (!differs.empty()) return invalid_argument("runs {} and {}: their {} differs", run.run_id, id, differs);
    return named;
  }
  const ExperimentReport* found = nullptr;
  for (const ExperimentReport& other : history.runs) {
    if (&other == &run) break;
    if (other.skipped.empty() && incomparable(run.provenance, other.provenance).empty()) found = &other;
  }
  if (found == nullptr) return not_found("no run before {} is of its machine, model and kind of evidence", run.run_id);
  return found;
}

// What one request took in each repeat.
struct Samples {
  std::string workload_digest;
  std::vector<double> e2e;
  std::array<std::vector<double>, kPhases.size()> phases;
};
using ByRequest = std::map<std::pair<CaseKey, std::string>, Samples>;

ByRequest samples_of(const ExperimentReport& run) {
  ByRequest found;
  for (const CaseRow& row : run.cases) {
    if (!row.done()) continue;
    for (const RequestRow& request : row.requests) {
      if (request.outcome != "finished") continue;
      Samples& samples = found[{row.key, request.id}];
      samples.workload_digest = row.workload_digest;
      samples.e2e.push_back(request.metric("e2e_ms").value_or(0));
      for (std::size_t i = 0; i < kPhases.size(); ++i)
        samples.phases[i].push_back(request.metric(kPhases[i].metric).value_or(0));
    }
  }
  return found;
}

double spread(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return most - least;
}

double rounded(double value) { return std::round(value * 1e6) / 1e6; }

}  // namespace

Result<Diagnosis> diagnose(const History& history, std::string_view run_id, std::string_view baseline_id) {
  const ExperimentReport* const run = find_run(history, run_id);
  if (run == nullptr) return not_found("the registry names no run {} that can be read", run_id);
  NMC_ASSIGN_OR_RETURN(const ExperimentReport* const baseline, baseline_of(history, *run, baseline_id));
  Diagnosis diagnosis{.run = run->run_id, .baseline = baseline->run_id, .regressions = {}, .caveats = {}};
  if (run->provenance.build.source_digest != baseline->provenance.build.source_digest)
    diagnosis.caveats.push_back(fmt::format("the builds differ: {} before, {} now", baseline->provenance.build.commit,
                                            run->provenance.build.commit));
  const ByRequest before = samples_of(*baseline);
  std::uint64_t other_work = 0;
  for (const auto& [who, now] : samples_of(*run)) {
    const auto found = before.find(who);
    if (found == before.end()) continue;
    if (found->second.workload_digest != now.workload_digest) {
      ++other_work;
      continue;
    }
    ++diagnosis.compared;
    Regression row{.key = who.first,
                   .request = who.second,
                   .before_ms = median_of(found->second.e2e),
                   .now_ms = median_of(now.e2e),
                   .noise_ms = std::max(spread(found->second.e2e), spread(now.e2e))};
    const double growth = row.now_ms - row.before_ms;
    if (growth <= row.noise_ms || growth <= kWorthTelling * row.before_ms) continue;
    for (std::size_t i = 0; i < kPhases.size(); ++i)
      row.growth_ms[i] = median_of(now.phases[i]) - median_of(found->second.phases[i]);
    row.phase = static_cast<std::size_t>(std::ranges::max_element(row.growth_ms) - row.growth_ms.begin());
    diagnosis.regressions.push_back(std::move(row));
  }
  if (other_work > 0) diagnosis.caveats.push_back(fmt::format("{} requests were asked otherwise before", other_work));
  return diagnosis;
}

Json diagnosis_json(const Diagnosis& diagnosis) {
  Json json = {{"schema", "nano-mooncake/pressure-diagnosis/v1"},
               {"run", diagnosis.run},
               {"baseline", diagnosis.baseline},
               {"compared", diagnosis.compared},
               {"caveats", diagnosis.caveats},
               {"regressions", Json::array()}};
  for (const Regression& row : diagnosis.regressions) {
    Json phases = Json::object();
    for (std::size_t i = 0; i < kPhases.size(); ++i) phases[std::string(kPhases[i].metric)] = rounded(row.growth_ms[i]);
    json["regressions"].push_back({{"case", row.key.name()},
                                   {"request", row.request},
                                   {"before_e2e_ms", rounded(row.before_ms)},
                                   {"now_e2e_ms", rounded(row.now_ms)},
                                   {"noise_ms", rounded(row.noise_ms)},
                                   {"phase", kPhases[row.phase].metric},
                                   {"resource", kPhases[row.phase].resource},
                                   {"growth_ms", phases}});
  }
  return json;
}

}  // namespace nmc::evidence
