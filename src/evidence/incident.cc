#include "evidence/incident.h"

#include <algorithm>
#include <cmath>

#include "evidence/metrics.h"

namespace nmc::evidence {
namespace {

// Runs that could have been judged with the cohort's but for their build.
std::vector<const ExperimentReport*> baseline_runs(const History& history, const Cohort& cohort) {
  std::vector<const ExperimentReport*> found;
  const Provenance& own = cohort.runs.back()->provenance;
  for (const ExperimentReport& run : history.runs) {
    const bool judged = std::ranges::count(cohort.runs, &run) > 0;
    const Provenance& other = run.provenance;
    if (!judged && run.skipped.empty() && other.machine.fingerprint == own.machine.fingerprint &&
        other.model.digest == own.model.digest && other.evidence_tier == own.evidence_tier)
      found.push_back(&run);
  }
  return found;
}

bool is_time(const std::string& metric) {
  const Metric* const found = find_request_metric(metric);
  return found != nullptr && found->unit == "ms";
}

// Stages that are part of a time.
bool belongs(std::string_view phase, const std::string& metric) {
  if (metric == "ttft_ms")
    return phase == "queue_ms" || phase == "lookup_ms" || phase == "restore_ms" || phase == "prefill_ms";
  return metric == "e2e_ms" || metric == phase;
}

Incident attribute_time(const RuleVerdict& rule, const Cohort& cohort,
                        std::span<const ExperimentReport* const> earlier) {
  const auto takes = [&](const CaseRow& row) { return rule.rule.selector.takes(row.key); };
  const PhaseMeans now = phase_means(cohort.runs, takes), before = phase_means(earlier, takes);
  const bool grown = before.samples > 0;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    if (belongs(kPhases[i].metric, rule.rule.metric)) order.push_back(i);
  }
  const auto weight = [&](std::size_t i) { return grown ? now.ms[i] - before.ms[i] : now.ms[i]; };
  std::ranges::sort(order, std::greater(), weight);
  const std::size_t first = order[0], second = order[std::min<std::size_t>(1, order.size() - 1)];
  Incident incident{.rule = rule,
                    .phase = std::string(kPhases[first].metric),
                    .resource = std::string(kPhases[first].resource),
                    .evidence = "",
                    .ruled_out = "",
                    .baseline = {}};
  if (grown) {
    for (const ExperimentReport* run : earlier) incident.baseline.push_back(run->run_id);
    incident.evidence = fmt::format("mean {} of {:.3f} ms over {} requests, {:.3f} ms before", incident.phase,
                                    now.ms[first], now.samples, before.ms[first]);
    incident.ruled_out = first == second ? "it is the only stage of that time"
                                         : fmt::format("{}: grew by {:.3f} ms, against {:.3f} ms",
                                                       kPhases[second].metric, weight(second), weight(first));
  } else {
    incident.evidence = fmt::format("mean {} of {:.3f} ms over {} requests is the largest of its stages",
                                    incident.phase, now.ms[first], now.samples);
    incident.ruled_out = first == second
                             ? "it is the only stage of that time"
                             : fmt::format("{}: {:.3f} ms on the mean", kPhases[second].metric, now.ms[second]);
  }
  return incident;
}

struct CountMeaning {
  std::string_view metric, resource, ruled_out;
};
constexpr CountMeaning kCounts[] = {
    {"leaked_handles", "pins of cached blocks", "residual_slots: a slot that stays taken would be counted there"},
    {"residual_slots", "places in queue and batch", "leaked_handles: a pinned block would be counted there"},
    {"rejected", "the admission queue", "failures: a request that failed isn't counted as rejected"},
    {"finished", "whatever ended the others", "rejected: is counted by itself"},
    {"saved_tokens", "the cache", "prompt_tokens: the workload is the same by its digest"},
    {"computed_tokens", "the cache", "prompt_tokens: the workload is the same by its digest"},
};

Incident attribute_count(const RuleVerdict& rule) {
  const auto* const known = std::ranges::find(kCounts, rule.rule.metric, &CountMeaning::metric);
  const bool found = known != std::end(kCounts);
  return {.rule = rule,
          .phase = rule.rule.metric,
          .resource = std::string(found ? known->resource : "what the counter counts"),
          .evidence = fmt::format("{} of {} is {:g} over {} samples", rule.rule.statistic, rule.rule.metric,
                                  rule.measured.value.value_or(0), rule.measured.samples),
          .ruled_out = std::string(found ? known->ruled_out : "timing: a counter doesn't depend on it"),
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
    incidents.push_back(is_time(rule.rule.metric) ? attribute_time(rule, cohort, earlier) : attribute_count(rule));
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
  const auto rounded = [](double value) { return std::round(value * 1e6) / 1e6; };
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
