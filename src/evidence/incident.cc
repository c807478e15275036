#include "evidence/incident.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "evidence/metrics.h"

namespace nmc::evidence {
namespace {

// Runs that could have been judged with the cohort's but for their build.
std::vector<const ExperimentReport*> baseline_runs(const History& history, const Cohort& cohort) {
  std::vector<const ExperimentReport*> found;
  const Provenance& own = cohort.runs.back()->provenance;
  for (const ExperimentReport& run : history.runs) {
    const bool judged = std::ranges::count(cohort.runs, &run) > 0;
    if (!judged && run.skipped.empty() && !difference(own, run.provenance, Alike::kBuildType)) found.push_back(&run);
  }
  return found;
}

// Stages that are part of a time.
bool belongs(std::string_view phase, const std::string& metric) {
  if (metric == "ttft_ms")
    return phase == "queue_ms" || phase == "lookup_ms" || phase == "restore_ms" || phase == "prefill_ms";
  return metric == "e2e_ms" || metric == phase;
}

// Cases that were asked the same; of others the stages say nothing about a rule's.
using Asked = std::set<std::pair<CaseKey, std::string>>;  // and the workload's digest

Asked asked_of(const BudgetRule& rule, const Cohort& cohort) {
  Asked asked;
  cohort.for_each_case([&](const ExperimentReport&, const CaseRow& row) {
    if (row.done() && rule.selector.takes(row.key)) asked.emplace(row.key, row.workload_digest);
  });
  return asked;
}

// The rule's value had no request spent more than `usual_ms` in a stage.
std::optional<double> value_without(const BudgetRule& rule, const Cohort& cohort, const Phase& phase, double usual_ms) {
  std::vector<ExperimentReport> runs;
  for (const ExperimentReport* run : cohort.runs) runs.push_back(*run);
  std::vector<const ExperimentReport*> changed;
  for (ExperimentReport& run : runs) {
    changed.push_back(&run);
    for (CaseRow& row : run.cases) {
      if (!rule.selector.takes(row.key)) continue;
      for (RequestRow& request : row.requests) {
        const auto metric = request.metrics.find(rule.metric);
        const double excess_ms = request.metric(phase.metric).value_or(0) - usual_ms;
        if (metric != request.metrics.end() && excess_ms > 0) metric->second -= excess_ms;
      }
    }
  }
  return measure(rule, changed).value;
}

// One stage as a cause: how long it took, and what would be without it.
struct Cause {
  std::size_t phase = 0;
  double now_ms = 0, usual_ms = 0;  // usual: before; 0 where nothing is known of before
  std::optional<double> value_without;

  double weight() const { return now_ms - usual_ms; }
};

bool is_within(const BudgetRule& rule, const std::optional<double>& value) {
  if (!value) return false;
  return rule.at_least ? *value >= rule.effective_limit() : *value <= rule.effective_limit();
}

std::string described(const Cause& cause, const BudgetRule& rule, bool grown) {
  const std::string_view name = kPhases[cause.phase].metric;
  std::string text = grown ? fmt::format("mean {} of {:.3f} ms, {:.3f} ms before", name, cause.now_ms, cause.usual_ms)
                           : fmt::format("mean {} of {:.3f} ms", name, cause.now_ms);
  if (cause.value_without)
    text += fmt::format("; without {} the {} of {} would be {:.3f}", grown ? "that growth" : "it", rule.statistic,
                        rule.metric, *cause.value_without);
  return text;
}

// The largest first.
std::vector<Cause> causes_of(const BudgetRule& rule, const Cohort& cohort, const PhaseMeans& now,
                             const PhaseMeans& before) {
  std::vector<Cause> causes;
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    if (belongs(kPhases[i].metric, rule.metric)) causes.push_back({i, now.ms[i], before.ms[i], {}});
  }
  std::ranges::sort(causes, std::greater(), &Cause::weight);
  causes.resize(std::min<std::size_t>(causes.size(), 2));
  for (Cause& cause : causes) cause.value_without = value_without(rule, cohort, kPhases[cause.phase], cause.usual_ms);
  return causes;
}

Incident attribute_time(const RuleVerdict& rule, const Cohort& cohort,
                        std::span<const ExperimentReport* const> earlier) {
  const Asked asked = asked_of(rule.rule, cohort);
  const auto takes = [&](const CaseRow& row) { return asked.contains({row.key, row.workload_digest}); };
  const PhaseMeans now = phase_means(cohort.runs, takes), before = phase_means(earlier, takes);
  std::vector<Cause> causes = causes_of(rule.rule, cohort, now, before);
  // Where nothing grew, the stages are compared with each other.
  const bool grown = before.samples > 0 && causes[0].weight() > 0;
  if (before.samples > 0 && !grown) causes = causes_of(rule.rule, cohort, now, {});
  Incident incident{.rule = rule,
                    .phase = std::string(kPhases[causes[0].phase].metric),
                    .resource = std::string(kPhases[causes[0].phase].resource),
                    .evidence = fmt::format("{} requests: {}", now.samples, described(causes[0], rule.rule, grown)),
                    .ruled_out = "it is the only stage of that time",
                    .baseline = {}};
  if (grown) {
    for (const ExperimentReport* run : earlier) incident.baseline.push_back(run->run_id);
  }
  if (causes.size() > 1)
    incident.ruled_out = fmt::format("{}{}", is_within(rule.rule, causes[1].value_without) ? "not ruled out: " : "",
                                     described(causes[1], rule.rule, grown));
  return incident;
}

// What a counter counts, and another counter that would tell of another cause.
struct CountMeaning {
  std::string_view metric, resource, other_metric, other_cause;
};
constexpr CountMeaning kCounts[] = {
    {"leaked_handles", "pins of cached blocks", "worker_failures", "a worker that died with them"},
    {"residual_slots", "places in queue and batch", "worker_failures", "a worker that died with them"},
    {"orphan_processes", "supervision of workers", "worker_failures", "a worker that died on its own"},
    {"orphan_shm", "clean-up of shared memory", "worker_failures", "a worker that died before it cleaned up"},
    {"worker_failures", "the workers themselves", "leaked_handles", "memory that is never given back"},
    {"quarantined_entries", "cached blocks on disk or in memory", "worker_failures", "a worker that died as it wrote"},
    {"rejected", "the admission queue", "worker_failures", "places that a dead worker took along"},
    {"finished", "whatever ended the others", "rejected", "a full queue"},
    {"saved_tokens", "the cache", "quarantined_entries", "cached blocks that were damaged"},
    {"hit_blocks", "the cache", "quarantined_entries", "cached blocks that were damaged"},
    {"computed_tokens", "the cache", "quarantined_entries", "cached blocks that were damaged"},
    {"snapshot_bytes", "the hand-over between workers", "preemptions", "requests that were handed over twice"},
    {"transfer_bytes", "the carrier between workers", "preemptions", "requests that were handed over twice"},
    {"preemptions", "free blocks", "leaked_handles", "blocks that stay pinned"},
    {"worker_utilization", "compute of workers", "worker_failures", "a worker that was away"},
};

// Judged by the other counter's largest value over the same cases.
std::string other_cause(const CountMeaning& meaning, const RuleVerdict& rule, const Cohort& cohort) {
  BudgetRule other = rule.rule;
  other.metric = meaning.other_metric;
  other.statistic = "max";
  other.over.reset();
  other.min_samples = 1;
  const Measured measured = measure(other, cohort.runs);
  if (!measured.value)
    return fmt::format("not ruled out: {}: {} isn't known", meaning.other_cause, meaning.other_metric);
  return fmt::format("{}{}: {} is {:g} at most", *measured.value == 0 ? "" : "not ruled out: ", meaning.other_cause,
                     meaning.other_metric, *measured.value);
}

Incident attribute_count(const RuleVerdict& rule, const Cohort& cohort) {
  const auto* const known = std::ranges::find(kCounts, rule.rule.metric, &CountMeaning::metric);
  const bool found = known != std::end(kCounts);
  return {.rule = rule,
          .phase = rule.rule.metric,
          .resource = std::string(found ? known->resource : "what the counter counts"),
          .evidence = fmt::format("{} of {} is {:g} over {} samples", rule.rule.statistic, rule.rule.metric,
                                  rule.measured.value.value_or(0), rule.measured.samples),
          .ruled_out = found ? other_cause(*known, rule, cohort) : "timing: a counter doesn't depend on it",
          .baseline = {}};
}

Json rule_json(const RuleVerdict& rule) {
  return {{"id", rule.rule.id},
          {"value", rule.measured.value ? Json(*rule.measured.value) : Json("not_available")},
          {"limit", rule.rule.effective_limit()}};
}

}  // namespace

std::vector<Incident> explain_failures(const History& history, const Cohort& cohort, const PressureVerdict& verdict) {
  const std::vector<const ExperimentReport*> earlier = baseline_runs(history, cohort);
  std::vector<Incident> incidents;
  for (const RuleVerdict& rule : verdict.rules) {
    if (rule.verdict != Verdict::kFail) continue;
    incidents.push_back(is_time(rule.rule.metric) ? attribute_time(rule, cohort, earlier)
                                                  : attribute_count(rule, cohort));
  }
  return incidents;
}

Json incidents_json(const PressureVerdict& verdict, const std::vector<Incident>& incidents) {
  Json json = {{"schema", "nano-mooncake/pressure-incident/v1"},
               {"verdict", verdict_name(verdict.verdict)},
               {"profile", verdict.profile},
               {"runs", verdict.runs},
               {"incidents", Json::array()}};
  for (const Incident& incident : incidents) {
    Json row = rule_json(incident.rule);
    row["phase"] = incident.phase;
    row["resource"] = incident.resource;
    row["evidence"] = incident.evidence;
    row["ruled_out"] = incident.ruled_out;
    row["baseline_runs"] = incident.baseline;
    json["incidents"].push_back(std::move(row));
  }
  return json;
}

std::vector<NearMiss> near_misses(const Cohort& cohort, const PressureVerdict& verdict, double near) {
  std::vector<NearMiss> found;
  for (const RuleVerdict& rule : verdict.rules) {
    const double limit = rule.rule.effective_limit();
    if (!rule.measured.value || limit == 0) continue;  // of a limit of 0 there is no part
    NearMiss one{.rule = rule, .values = {}};
    one.margin = (rule.rule.at_least ? *rule.measured.value - limit : limit - *rule.measured.value) / std::abs(limit);
    if (std::abs(one.margin) > near) continue;
    std::vector<double> values;
    for (const ExperimentReport* run : cohort.runs) {
      const Measured measured = measure(rule.rule, std::span(&run, 1));
      if (!measured.value) continue;
      one.values.emplace_back(run->run_id, *measured.value);
      values.push_back(*measured.value);
    }
    if (values.size() > 1 && values.front() != 0)
      one.trend = (values.back() - values.front()) / std::abs(values.front());
    if (values.size() > 1) {
      const auto [least, most] = std::ranges::minmax(values);
      const double middle = std::abs(median_of(values));
      one.noise = middle == 0 ? 0 : (most - least) / middle;
    }
    found.push_back(std::move(one));
  }
  return found;
}

Json near_misses_json(const PressureVerdict& verdict, const std::vector<NearMiss>& found, double near) {
  Json json = {{"schema", "nano-mooncake/pressure-margin/v1"},
               {"verdict", verdict_name(verdict.verdict)},
               {"profile", verdict.profile},
               {"near", near},
               {"runs", verdict.runs},
               {"rules", Json::array()}};
  for (const NearMiss& one : found) {
    Json row = rule_json(one.rule);
    row["margin"] = rounded(one.margin);
    row["trend"] = one.values.size() > 1 ? Json(rounded(one.trend)) : Json("not_available");
    row["noise"] = one.values.size() > 1 ? Json(rounded(one.noise)) : Json("not_available");
    row["values"] = Json::array();
    for (const auto& [run, value] : one.values) row["values"].push_back({{"run_id", run}, {"value", rounded(value)}});
    json["rules"].push_back(std::move(row));
  }
  return json;
}

}  // namespace nmc::evidence
