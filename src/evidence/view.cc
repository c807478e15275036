#include "evidence/view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "evidence/fault_budget.h"
#include "evidence/metrics.h"
#include "evidence/percentiles.h"
#include "evidence/phases.h"

namespace nmc::evidence {
namespace {

// All that was measured of one case, its repeats and runs together.
struct CaseSamples {
  std::map<std::string, std::vector<double>> metrics;
  std::map<std::string, std::uint64_t> outcomes, sources;
  std::map<std::string, std::vector<double>> utilization;  // by role
  std::uint64_t starts = 0, requests = 0, not_done = 0;
  std::set<std::string> runs;

  void add(const ExperimentReport& run, const CaseRow& row) {
    if (!row.done()) {
      ++not_done;
      return;
    }
    ++starts;
    runs.insert(run.run_id);
    for (const RequestRow& request : row.requests) {
      ++requests;
      ++outcomes[request.outcome];
      ++sources[request.cache_source];
      for (const auto& [name, value] : request.metrics) metrics[name].push_back(value);
    }
    for (const WorkerRow& worker : row.workers) utilization[worker.role].push_back(worker.worker_utilization);
  }
  double sum(const std::string& metric) const {
    double total = 0;
    for (const double value : of(metric)) total += value;
    return total;
  }
  const std::vector<double>& of(const std::string& metric) const {
    static const std::vector<double> none;
    const auto found = metrics.find(metric);
    return found == metrics.end() ? none : found->second;
  }
};

Json key_json(const CaseKey& key) {
  return {{"workload", key.workload}, {"mode", key.mode},           {"transfer", key.transfer},
          {"ratio", key.ratio},       {"lifecycle", key.lifecycle}, {"fault", key.fault}};
}

Json percentile_json(const Percentiles& found, unsigned permille) {
  for (std::size_t i = 0; i < kReportedPermille.size(); ++i) {
    if (kReportedPermille[i] == permille && found.at[i]) return rounded(found.at[i]->value);
  }
  return "not_available";
}

// What a row of any view has: whose figures they are, and times by percentile.
Json case_json(const CaseKey& key, const CaseSamples& samples, std::initializer_list<const char*> times,
               std::span<const unsigned> permilles) {
  Json row = key_json(key);
  row["starts"] = samples.starts;
  row["requests"] = samples.requests;
  for (const char* metric : times) {
    const Percentiles found = percentiles_of(samples.of(metric));
    for (const unsigned permille : permilles)
      row[fmt::format("{}_p{}", metric, permille / 10)] = percentile_json(found, permille);
    row[fmt::format("{}_samples", metric)] = found.samples;
  }
  return row;
}

std::vector<ViewColumn> key_columns() { return {{"workload"}, {"mode"}, {"transfer"}, {"ratio"}, {"lifecycle"}}; }

void add_columns(std::vector<ViewColumn>& columns, std::initializer_list<ViewColumn> more) {
  columns.insert(columns.end(), more);
}

// Of cases that `takes` takes, those of other workloads than the reference apart.
std::map<CaseKey, CaseSamples> collect(const Cohort& cohort, View& view,
                                       const std::function<bool(const CaseKey&)>& takes) {
  const std::map<CaseKey, std::string> reference = reference_workloads(cohort);
  std::map<CaseKey, CaseSamples> cases;
  cohort.for_each_case([&](const ExperimentReport& run, const CaseRow& row) {
    if (!takes(row.key)) return;
    const auto expected = reference.find(row.key);
    if (row.done() && row.workload_digest != expected->second) {
      view.apart.push_back(
          {fmt::format("{} of run {}", row.key.name(), run.run_id),
           fmt::format("workload: {:.12}..., expected {:.12}...", row.workload_digest, expected->second)});
      return;
    }
    cases[row.key].add(run, row);
  });
  return cases;
}

bool without_fault(const CaseKey& key) { return key.fault == "none"; }

void compare_view(const Cohort& cohort, View& view) {
  view.columns = key_columns();
  add_columns(view.columns, {{"starts"},
                             {"requests"},
                             {"ttft_ms_p50"},
                             {"ttft_ms_p95"},
                             {"e2e_ms_p50"},
                             {"e2e_ms_p95"},
                             {"e2e_ms_p99"},
                             {"computed_tokens"},
                             {"saved_part"},
                             {"transfer_bytes"},
                             {"cache_sources"}});
  for (const auto& [key, samples] : collect(cohort, view, without_fault)) {
    Json row = case_json(key, samples, {"ttft_ms", "e2e_ms"}, kReportedPermille);
    for (const char* metric : {"prompt_tokens", "computed_tokens", "saved_tokens", "output_tokens", "hit_blocks",
                               "snapshot_bytes", "transfer_bytes"})
      row[metric] = static_cast<std::uint64_t>(samples.sum(metric));
    const double prompt = samples.sum("prompt_tokens");
    row["saved_part"] = prompt > 0 ? Json(rounded(samples.sum("saved_tokens") / prompt)) : Json("not_available");
    row["outcomes"] = samples.outcomes;
    std::string sources;
    for (const auto& [source, count] : samples.sources)
      sources += fmt::format("{}{} {}", sources.empty() ? "" : ", ", source, count);
    row["cache_sources"] = sources;
    row["not_done"] = samples.not_done;
    row["runs"] = samples.runs;
    view.rows.push_back(std::move(row));
  }
}

// Along time: each case, run by run, against the run before.
void trend_view(const History& history, const Cohort& cohort, View& view) {
  view.columns = key_columns();
  add_columns(view.columns, {{"ended_at"},
                             {"commit"},
                             {"build_changed"},
                             {"requests"},
                             {"ttft_ms_p50"},
                             {"ttft_change_percent", 1},
                             {"e2e_ms_p50"},
                             {"e2e_change_percent", 1}});
  const ExperimentReport& newest = *cohort.runs.back();
  const std::map<CaseKey, std::string> reference = reference_workloads(cohort);
  struct Before {
    Json ttft, e2e;
    std::string source;
  };
  std::map<CaseKey, Before> before;
  std::map<CaseKey, std::vector<Json>> rows;
  view.runs.clear();
  view.apart.clear();
  for (const ExperimentReport& run : history.runs) {
    if (!run.skipped.empty()) continue;
    if (difference(newest.provenance, run.provenance, Alike::kKind)) {
      view.apart.push_back({run.run_id, "another machine, model or kind of evidence"});
      continue;
    }
    view.runs.push_back(run.run_id);
    std::map<CaseKey, CaseSamples> cases;
    for (const CaseRow& row : run.cases) {
      const auto expected = reference.find(row.key);
      if (row.done() && without_fault(row.key) && expected != reference.end() &&
          expected->second == row.workload_digest)
        cases[row.key].add(run, row);
    }
    const auto change = [](const Json& now, const Json& then) -> Json {
      if (!now.is_number() || !then.is_number() || then.get<double>() == 0) return "not_available";
      return rounded(100 * (now.get<double>() / then.get<double>() - 1));
    };
    for (const auto& [key, samples] : cases) {
      const Json ttft = percentile_json(percentiles_of(samples.of("ttft_ms")), 500);
      const Json e2e = percentile_json(percentiles_of(samples.of("e2e_ms")), 500);
      const auto then = before.find(key);
      const bool first = then == before.end();
      Json row = key_json(key);
      row["run_id"] = run.run_id;
      row["ended_at"] = run.ended_at;
      row["commit"] = run.provenance.build.commit;
      row["build_changed"] = !first && then->second.source != run.provenance.build.source_digest ? "yes" : "";
      row["requests"] = samples.requests;
      row["ttft_ms_p50"] = ttft;
      row["ttft_change_percent"] = first ? Json("not_available") : change(ttft, then->second.ttft);
      row["e2e_ms_p50"] = e2e;
      row["e2e_change_percent"] = first ? Json("not_available") : change(e2e, then->second.e2e);
      before[key] = {ttft, e2e, run.provenance.build.source_digest};
      rows[key].push_back(std::move(row));
    }
  }
  for (auto& [key, of_case] : rows)
    for (Json& row : of_case) view.rows.push_back(std::move(row));
}

// How the number of workers bears on a load that comes several at a time, and on one that is too much.
void pressure_view(const Cohort& cohort, View& view) {
  view.columns = key_columns();
  add_columns(view.columns, {{"starts"},
                             {"requests"},
                             {"queue_ms_p50"},
                             {"queue_ms_p95"},
                             {"ttft_ms_p50"},
                             {"ttft_ms_p95"},
                             {"e2e_ms_p50"},
                             {"e2e_ms_p95"},
                             {"prefill_utilization"},
                             {"decode_utilization"},
                             {"rejected"}});
  for (const auto& [key, samples] : collect(cohort, view, without_fault)) {
    const auto rejected = samples.outcomes.find("rejected");
    const bool several = key.workload == "pressure" || key.workload == "overload" ||
                         (key.ratio != "1" && key.ratio != "1p1d") || rejected != samples.outcomes.end();
    if (!several) continue;
    Json row = case_json(key, samples, {"queue_ms", "ttft_ms", "e2e_ms"}, std::span(kReportedPermille).first<2>());
    for (const char* role : {"prefill", "decode", "both"}) {
      const auto found = samples.utilization.find(role);
      double sum = 0;
      if (found != samples.utilization.end())
        for (const double one : found->second) sum += one;
      row[fmt::format("{}_utilization", role)] = found == samples.utilization.end()
                                                     ? Json("not_available")
                                                     : Json(rounded(sum / static_cast<double>(found->second.size())));
    }
    row["rejected"] = rejected == samples.outcomes.end() ? 0 : rejected->second;
    view.rows.push_back(std::move(row));
  }
}

void decision_rows(const std::vector<Decision>& decisions, double margin, View& view) {
  for (const Decision& decision : decisions) view.rows.push_back(decision_json(decision, margin));
}

void frontier_view(const Cohort& cohort, const DecisionOptions& options, View& view) {
  view.columns = {{"workload"},         {"transfer"},   {"ratio"},       {"lifecycle"}, {"fault"}, {"verdict"},
                  {"effect"},           {"low"},        {"high"},        {"starts"},    {"pairs"}, {"saved_tokens", 1},
                  {"prefill_saved_ms"}, {"restore_ms"}, {"transfer_ms"}, {"net_ms"},    {"reason"}};
  decision_rows(frontier(cohort, options), options.margin, view);
}

void decision_view(const Cohort& cohort, const DecisionOptions& options, View& view) {
  view.columns = {{"question"}, {"workload"}, {"transfer"}, {"ratio"},  {"lifecycle"}, {"verdict"}, {"metric"},
                  {"effect"},   {"low"},      {"high"},     {"starts"}, {"pairs"},     {"reason"}};
  decision_rows(decide(cohort, options), options.margin, view);
}

void faults_view(const Cohort& cohort, View& view) {
  view.columns = {{"fault"},    {"workload"},  {"transfer"}, {"ratio"}, {"run_id"},          {"repeat"}, {"verdict"},
                  {"expected"}, {"failpoint"}, {"process"},  {"fired"}, {"worker_failures"}, {"detail"}};
  // Each case's breaches, by the same judge as the fault budget's.
  std::map<std::tuple<std::string, std::string, std::uint64_t>, std::pair<Verdict, std::string>> breaches;
  for (const Invariant& invariant : judge_faults(cohort).invariants) {
    for (const Invariant::Breach& breach : invariant.breaches) {
      auto& [verdict, detail] = breaches[{breach.run_id, breach.case_name, breach.repeat}];
      verdict = both(verdict, breach.missing ? Verdict::kInsufficient : Verdict::kFail);
      detail += (detail.empty() ? "" : "; ") + breach.detail;
    }
  }
  cohort.for_each_case([&](const ExperimentReport& run, const CaseRow& row) {
    if (!row.fault) return;
    const auto found = breaches.find({run.run_id, row.key.name(), row.repeat});
    Json json = key_json(row.key);
    json["run_id"] = run.run_id;
    json["repeat"] = row.repeat;
    json["verdict"] = verdict_name(found == breaches.end() ? Verdict::kPass : found->second.first);
    json["expected"] = row.fault->expected;
    json["failpoint"] = row.fault->failpoint;
    json["process"] = row.fault->process;
    json["fired"] = row.fault->fired;
    json["observed"] = row.fault->observed;
    const auto failures = row.resources.find("worker_failures");
    json["worker_failures"] = failures == row.resources.end() ? Json("not_available") : Json(failures->second);
    json["resources"] = row.resources;
    json["detail"] = found == breaches.end() ? "" : found->second.second;
    view.rows.push_back(std::move(json));
  });
  std::ranges::stable_sort(view.rows, {}, [](const Json& row) {
    return fmt::format("{}/{}/{}", row["fault"].get<std::string>(), row["workload"].get<std::string>(),
                       row["transfer"].get<std::string>());
  });
}

// What a reader has to know before the figures.
std::vector<std::string> caveats_of(const Cohort& cohort) {
  std::set<std::string> caveats;
  for (const ExperimentReport* run : cohort.runs) {
    const BuildIdentity& build = run->provenance.build;
    if (build.dirty) caveats.insert(fmt::format("run {}: from a tree with changes that no commit has", run->run_id));
    if (build.build_type != "Release")
      caveats.insert(fmt::format("run {}: a {} build: its times mean little", run->run_id, build.build_type));
    if (!build.failpoints)
      caveats.insert(fmt::format("run {}: a build without failpoints: faults were skipped", run->run_id));
  }
  if (cohort.runs.back()->provenance.evidence_tier == kTierMechanism)
    caveats.insert("random weights: evidence of mechanisms, not of a model's quality or of production");
  return {caveats.begin(), caveats.end()};
}

}  // namespace

Result<View> make_view(std::string_view name, const History& history, const Cohort& cohort,
                       const DecisionOptions& options) {
  View view{.name = std::string(name),
            .columns = {},
            .rows = {},
            .apart = {},
            .caveats = caveats_of(cohort),
            .runs = cohort.run_ids()};
  for (const Cohort::Apart& apart : cohort.apart) view.apart.push_back({"run " + apart.run_id, apart.why});
  if (name == "compare")
    compare_view(cohort, view);
  else if (name == "trend")
    trend_view(history, cohort, view);
  else if (name == "pressure")
    pressure_view(cohort, view);
  else if (name == "frontier")
    frontier_view(cohort, options, view);
  else if (name == "decision")
    decision_view(cohort, options, view);
  else if (name == "faults")
    faults_view(cohort, view);
  else
    return invalid_argument("view {}: expected one of {}", name, fmt::join(kViews, ", "));
  return view;
}

Json view_json(const View& view, const History& history) {
  Json json = {{"schema", "nano-mooncake/results-view/v1"},
               {"view", view.name},
               {"runs", view.runs},
               {"caveats", view.caveats},
               {"rows", view.rows},
               {"apart", Json::array()},
               {"left_out", left_out_json(history)}};
  for (const View::Apart& apart : view.apart) json["apart"].push_back({{"what", apart.what}, {"why", apart.why}});
  return json;
}

}  // namespace nmc::evidence
