#include "evidence/diagnosis.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "evidence/metrics.h"

namespace nmc::evidence {
namespace {

constexpr double kWorthTelling = 0.05;

using Runs = std::vector<const ExperimentReport*>;

Result<Runs> named_baseline(const History& history, const ExperimentReport& run, std::string_view id) {
  NMC_ASSIGN_OR_RETURN(const ExperimentReport* const named, find_run(history, id));
  if (named == &run) return invalid_argument("run {} is its own baseline, expected another run", id);
  if (const auto differs = difference(run.provenance, named->provenance, Alike::kBuildType))
    return invalid_argument("runs {} and {}: their {} differs", run.run_id, id, differs->what);
  return Runs{named};
}

// The newest that can be compared, and those of its build before it.
Result<Runs> newest_baseline(const History& history, const ExperimentReport& run) {
  Runs found;
  for (const ExperimentReport& other : history.runs) {
    if (&other == &run) break;
    if (other.skipped.empty() && !difference(run.provenance, other.provenance, Alike::kBuildType))
      found.push_back(&other);
  }
  if (found.empty())
    return not_found("no run before {} is of its machine, model, kind of evidence and build type", run.run_id);
  const std::string source = found.back()->provenance.build.source_digest;
  std::erase_if(found, [&](const ExperimentReport* other) { return other->provenance.build.source_digest != source; });
  return found;
}

// What one request took in each repeat, and run.
struct Samples {
  std::vector<double> e2e;
  std::array<std::vector<double>, kPhases.size()> phases;
};
using ByRequest = std::map<std::tuple<CaseKey, std::string, std::string>, Samples>;  // case, workload, request

void add_samples(const ExperimentReport& run, ByRequest& found) {
  for (const CaseRow& row : run.cases) {
    if (!row.done() || row.key.fault != "none") continue;
    for (const RequestRow& request : row.requests) {
      if (request.outcome != "finished") continue;
      Samples& samples = found[{row.key, row.workload_digest, request.id}];
      samples.e2e.push_back(request.metric("e2e_ms").value_or(0));
      for (std::size_t i = 0; i < kPhases.size(); ++i)
        samples.phases[i].push_back(request.metric(kPhases[i].metric).value_or(0));
    }
  }
}

double spread(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return most - least;
}

// Nothing where the request didn't grow beyond the noise.
std::optional<Regression> regression_of(const Samples& before, const Samples& now) {
  Regression row{.key = {},
                 .request = "",
                 .before_ms = median_of(before.e2e),
                 .now_ms = median_of(now.e2e),
                 .noise_ms = std::max(spread(before.e2e), spread(now.e2e))};
  const double growth = row.now_ms - row.before_ms;
  if (growth <= row.noise_ms || growth <= kWorthTelling * row.before_ms) return std::nullopt;
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    row.growth_ms[i] = median_of(now.phases[i]) - median_of(before.phases[i]);
  row.phase = static_cast<std::size_t>(std::ranges::max_element(row.growth_ms) - row.growth_ms.begin());
  return row;
}

}  // namespace

Result<Diagnosis> diagnose(const History& history, std::string_view run_id, std::string_view baseline_id) {
  NMC_ASSIGN_OR_RETURN(const ExperimentReport* const run, find_run(history, run_id));
  NMC_ASSIGN_OR_RETURN(const Runs baseline, baseline_id.empty() ? newest_baseline(history, *run)
                                                                : named_baseline(history, *run, baseline_id));
  Diagnosis diagnosis{.run = run->run_id, .baseline = {}, .regressions = {}, .caveats = {}};
  ByRequest before, now;
  for (const ExperimentReport* other : baseline) {
    diagnosis.baseline.push_back(other->run_id);
    add_samples(*other, before);
  }
  add_samples(*run, now);
  const BuildIdentity& build = baseline.back()->provenance.build;
  if (run->provenance.build.source_digest != build.source_digest)
    diagnosis.caveats.push_back(
        fmt::format("the builds differ: {} before, {} now", build.commit, run->provenance.build.commit));
  for (const auto& [who, samples] : now) {
    const auto found = before.find(who);
    if (found == before.end()) continue;
    ++diagnosis.compared;
    diagnosis.without_noise += found->second.e2e.size() < 2;
    if (found->second.e2e.size() < 2) continue;
    std::optional<Regression> row = regression_of(found->second, samples);
    if (!row) continue;
    row->key = std::get<0>(who);
    row->request = std::get<2>(who);
    diagnosis.regressions.push_back(std::move(*row));
  }
  if (diagnosis.without_noise > 0)
    diagnosis.caveats.push_back(
        fmt::format("{} requests were measured once before: their noise isn't known", diagnosis.without_noise));
  if (diagnosis.compared < now.size())
    diagnosis.caveats.push_back(
        fmt::format("{} requests weren't asked before in that way", now.size() - diagnosis.compared));
  return diagnosis;
}

Json diagnosis_json(const Diagnosis& diagnosis) {
  Json json = {{"schema", "nano-mooncake/pressure-diagnosis/v1"},
               {"run", diagnosis.run},
               {"baseline", diagnosis.baseline},
               {"compared", diagnosis.compared},
               {"without_noise", diagnosis.without_noise},
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
                                   {"share", rounded(row.share())},
                                   {"growth_ms", phases}});
  }
  return json;
}

}  // namespace nmc::evidence
