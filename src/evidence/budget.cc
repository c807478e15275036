#include "evidence/budget.h"

#include <algorithm>
#include <tuple>

#include "evidence/json_reader.h"
#include "evidence/metrics.h"
#include "evidence/percentiles.h"

namespace nmc::evidence {
namespace {

constexpr std::string_view kCaseMetrics[] = {"rejected",        "finished",         "worker_utilization",
                                             "leaked_handles",  "residual_slots",   "quarantined_entries",
                                             "worker_failures", "orphan_processes", "orphan_shm"};

bool is_known_metric(std::string_view name) {
  return find_request_metric(name) != nullptr || std::ranges::count(kCaseMetrics, name) > 0;
}

Json json_of(const Selector& selector) {
  Json json = Json::object();
  const auto add = [&](const char* name, const std::string& word) {
    if (!word.empty()) json[name] = word;
  };
  add("workload", selector.workload);
  add("mode", selector.mode);
  add("transfer", selector.transfer);
  add("ratio", selector.ratio);
  add("lifecycle", selector.lifecycle);
  return json;
}

using Names = std::initializer_list<std::string_view>;

// `value` is what `json` reads.
void refuse_others(const JsonReader& json, const Json& value, Names names) {
  if (!value.is_object()) return;  // it is refused by whoever reads it
  std::string expected = "one of the members";
  for (const std::string_view name : names) expected += fmt::format(" {}", name);
  for (const auto& [name, member] : value.items()) {
    if (std::ranges::find(names, name) == names.end()) json.refuse(name, expected, &member);
  }
}

void refuse_unknown_members(const JsonReader& rule, const Json& json) {
  refuse_others(
      rule, json,
      {"id", "metric", "statistic", "selector", "over", "direction", "limit", "min_samples", "slack", "calibrated"});
  for (const char* name : {"selector", "over"}) {
    if (json.is_object() && json.contains(name) && json[name].is_object())
      refuse_others(rule.member(name), json[name], {"workload", "mode", "transfer", "ratio", "lifecycle"});
  }
}

Selector read_selector(const JsonReader& json) {
  const auto word = [&](const char* name) { return json.has(name) ? json.text(name) : std::string(); };
  return {word("workload"), word("mode"), word("transfer"), word("ratio"), word("lifecycle")};
}

BudgetRule read_rule(const JsonReader& json) {
  BudgetRule rule{.id = json.text("id"),
                  .metric = json.text("metric"),
                  .statistic = json.text_of("statistic", {"p50", "p95", "p99", "mean", "max", "sum"}),
                  .selector = read_selector(json.member("selector")),
                  .over = {},
                  .limit = json.number("limit"),
                  .at_least = json.text_of("direction", {"at_most", "at_least"}) == "at_least",
                  .min_samples = json.count("min_samples"),
                  .slack = json.has("slack") ? json.number("slack") : 0,
                  .calibrated = {}};
  if (const Json slack = rule.slack; rule.slack < 0) json.refuse("slack", "a number of at least 0", &slack);
  if (const Json metric = rule.metric; !json.faulty() && !is_known_metric(rule.metric))
    json.refuse("metric", "a metric of requests or of cases", &metric);
  if (json.has("over")) rule.over = read_selector(json.member("over"));
  if (json.has("calibrated")) {
    const JsonReader calibrated = json.member("calibrated");
    rule.calibrated = BudgetRule::Calibrated{.limit = calibrated.number("limit"), .runs = {}};
    for (const JsonReader& run : calibrated.items("runs"))
      rule.calibrated->runs.emplace_back(run.text("run_id"), run.number("value"));
  }
  return rule;
}

std::vector<BudgetRule> read_profile(const JsonReader& profiles, const std::string& profile, const Json& json) {
  std::vector<BudgetRule> rules;
  const std::vector<JsonReader> readers = profiles.items(profile);
  for (std::size_t i = 0; i < readers.size(); ++i) {
    refuse_unknown_members(readers[i], json[i]);
    rules.push_back(read_rule(readers[i]));
    const auto same = std::ranges::count(rules, rules.back().id, &BudgetRule::id);
    if (same > 1) readers[i].refuse("id", "an id that no rule before it has", &json[i]["id"]);
  }
  return rules;
}

Json json_of(const BudgetRule& rule) {
  Json json = {{"id", rule.id},
               {"metric", rule.metric},
               {"statistic", rule.statistic},
               {"selector", json_of(rule.selector)},
               {"over", rule.over ? json_of(*rule.over) : Json(nullptr)},
               {"direction", rule.at_least ? "at_least" : "at_most"},
               {"limit", rule.limit},
               {"min_samples", rule.min_samples},
               {"slack", rule.slack},
               {"calibrated", nullptr}};
  if (rule.calibrated) {
    json["calibrated"] = {{"limit", rule.calibrated->limit}, {"runs", Json::array()}};
    for (const auto& [run, value] : rule.calibrated->runs)
      json["calibrated"]["runs"].push_back({{"run_id", run}, {"value", value}});
  }
  return json;
}

// Of one case: of each request, of each worker, or one number.
void add_samples(const std::string& metric, const CaseRow& row, std::vector<double>& samples) {
  if (find_request_metric(metric) != nullptr) {
    for (const RequestRow& request : row.requests) {
      const auto value = request.metric(metric);
      if (value && request.outcome == "finished") samples.push_back(*value);
    }
  } else if (metric == "rejected" || metric == "finished") {
    samples.push_back(static_cast<double>(std::ranges::count(row.requests, metric, &RequestRow::outcome)));
  } else if (metric == "worker_utilization") {
    for (const WorkerRow& worker : row.workers) samples.push_back(worker.worker_utilization);
  } else if (const auto found = row.resources.find(metric); found != row.resources.end()) {
    samples.push_back(static_cast<double>(found->second));
  }
}

// What a case doesn't say of a metric that it should; "": nothing. Of requests that failed there is no time, and theirs
// would have been the longest.
std::string missing_of(const std::string& metric, const CaseRow& row) {
  if (!row.done()) return fmt::format("{}: {}", row.status, row.reason);
  if (find_request_metric(metric) != nullptr) {
    const auto lost = std::ranges::count_if(row.requests, [](const RequestRow& request) {
      return request.outcome != "finished" && request.outcome != "rejected";
    });
    return lost == 0 ? "" : fmt::format("{} of {} requests didn't finish", lost, row.requests.size());
  }
  const bool derived = metric == "rejected" || metric == "finished" || metric == "worker_utilization";
  return derived || row.resources.contains(metric) ? "" : fmt::format("{} isn't known", metric);
}

std::optional<double> statistic_of(const std::string& statistic, std::vector<double> samples) {
  const auto sum = [&] {
    double total = 0;
    for (const double sample : samples) total += sample;
    return total;
  };
  if (statistic == "sum") return sum();
  if (statistic == "mean") return sum() / static_cast<double>(samples.size());
  if (statistic == "max") return std::ranges::max(samples);
  const Percentiles percentiles = percentiles_of(std::move(samples));
  for (std::size_t i = 0; i < kReportedPermille.size(); ++i) {
    if (statistic == fmt::format("p{}", kReportedPermille[i] / 10) && percentiles.at[i])
      return percentiles.at[i]->value;
  }
  return std::nullopt;
}

Measured measure_selected(const BudgetRule& rule, const Selector& selector,
                          std::span<const ExperimentReport* const> runs) {
  std::vector<double> samples;
  std::string missing;
  bool any = false;
  for (const ExperimentReport* run : runs) {
    for (const CaseRow& row : run->cases) {
      if (!selector.takes(row.key)) continue;
      const std::string lacks = missing_of(rule.metric, row);
      if (!lacks.empty() && missing.empty())
        missing = fmt::format("{} (run {}, repeat {}): {}", row.key.name(), run->run_id, row.repeat, lacks);
      if (!row.done()) continue;
      any = true;
      add_samples(rule.metric, row, samples);
    }
  }
  Measured measured{.value = {}, .samples = samples.size(), .why = "", .missing = std::move(missing)};
  if (!any) {
    measured.why = "no case of that kind was run";
  } else if (samples.empty() || samples.size() < rule.min_samples) {
    measured.why = fmt::format("{} samples, {} needed", samples.size(), std::max<std::uint64_t>(rule.min_samples, 1));
  } else {
    measured.value = statistic_of(rule.statistic, std::move(samples));
    if (!measured.value)
      measured.why = fmt::format("{} samples are too few for a {}", measured.samples, rule.statistic);
  }
  return measured;
}

RuleVerdict judge(const BudgetRule& rule, const Cohort& cohort, bool calibrated_here, bool require_calibrated) {
  RuleVerdict verdict{.rule = rule, .measured = measure(rule, cohort.runs)};
  if (!calibrated_here) verdict.rule.calibrated.reset();
  if (require_calibrated && rule.is_machines_own() && !verdict.rule.calibrated) {
    verdict.reason = "its limit isn't calibrated for this machine";
    return verdict;
  }
  if (!verdict.measured.value) {
    verdict.reason = verdict.measured.why;
    return verdict;
  }
  const double value = *verdict.measured.value, limit = verdict.rule.effective_limit();
  const bool passes = rule.at_least ? value >= limit : value <= limit;
  if (!passes) {
    verdict.verdict = Verdict::kFail;
    verdict.reason = fmt::format("{:g}, expected {} {:g}", value, rule.at_least ? "at least" : "at most", limit);
  } else if (!verdict.measured.missing.empty()) {
    verdict.reason = verdict.measured.missing;
  } else {
    verdict.verdict = Verdict::kPass;
  }
  return verdict;
}

Budget::Calibration conditions_of(const ExperimentReport& run) {
  const Provenance& provenance = run.provenance;
  return {.machine = provenance.machine.fingerprint,
          .model_digest = provenance.model.digest,
          .evidence_tier = provenance.evidence_tier,
          .build_type = provenance.build.build_type,
          .runs = {}};
}

bool is_calibrated_for(const Budget& budget, const ExperimentReport& run) {
  if (!budget.calibration) return false;
  Budget::Calibration expected = conditions_of(run);
  expected.margin = budget.calibration->margin;
  expected.runs = budget.calibration->runs;
  return *budget.calibration == expected;
}

bool asks_the_same(const BudgetRule& a, const BudgetRule& b) {
  const auto asked = [](const BudgetRule& rule) {
    return std::tie(rule.id, rule.metric, rule.statistic, rule.selector, rule.over, rule.limit, rule.at_least,
                    rule.min_samples, rule.slack);
  };
  return asked(a) == asked(b);
}

// Limits pass by themselves what they were made from.
std::string circularity(const Budget& budget, const std::vector<std::string>& judged) {
  const auto both_have =
      std::ranges::count_if(judged, [&](const auto& run) { return std::ranges::count(budget.calibration->runs, run); });
  if (both_have == 0) return "";
  return fmt::format("{} of the {} runs judged are among those that the limits were calibrated from", both_have,
                     judged.size());
}

}  // namespace

bool Selector::takes(const CaseKey& key) const {
  const auto fits = [](const std::string& wanted, const std::string& word) { return wanted.empty() || wanted == word; };
  return key.fault == "none" && fits(workload, key.workload) && fits(mode, key.mode) && fits(transfer, key.transfer) &&
         fits(ratio, key.ratio) && fits(lifecycle, key.lifecycle);
}

bool BudgetRule::is_machines_own() const { return !over && (is_time(metric) || metric == "worker_utilization"); }

Result<Budget> parse_budget(const Json& json, std::string_view name) {
  std::optional<Error> fault;
  const JsonReader root(json, "", &fault);
  root.expect_schema(kBudgetSchema);
  Budget budget;
  const Json profiles = root.object("profiles");
  const JsonReader reader(profiles, "profiles", &fault);
  for (const auto& [profile, rules] : profiles.items()) {
    budget.profiles[profile] = read_profile(reader, profile, rules);
  }
  if (root.has("calibration")) {
    const JsonReader calibration = root.member("calibration");
    budget.calibration = Budget::Calibration{.machine = calibration.hex_digest("machine"),
                                             .model_digest = calibration.hex_digest("model_digest"),
                                             .evidence_tier = calibration.text("evidence_tier"),
                                             .build_type = calibration.text("build_type"),
                                             .margin = calibration.number("margin"),
                                             .runs = calibration.text_list("runs")};
  }
  if (fault) return Failure(std::move(*fault).with_context(name));
  return budget;
}

Result<Budget> read_budget(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, std::uint64_t{64} << 20));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  return parse_budget(json, path.string());
}

Json budget_json(const Budget& budget) {
  Json json = {{"schema", kBudgetSchema}, {"profiles", Json::object()}, {"calibration", nullptr}};
  for (const auto& [profile, rules] : budget.profiles) {
    json["profiles"][profile] = Json::array();
    for (const BudgetRule& rule : rules) json["profiles"][profile].push_back(json_of(rule));
  }
  if (budget.calibration) {
    json["calibration"] = {{"machine", budget.calibration->machine},
                           {"model_digest", budget.calibration->model_digest},
                           {"evidence_tier", budget.calibration->evidence_tier},
                           {"build_type", budget.calibration->build_type},
                           {"margin", budget.calibration->margin},
                           {"runs", budget.calibration->runs}};
  }
  return json;
}

Result<std::span<const BudgetRule>> rules_of(const Budget& budget, const std::string& profile) {
  const auto found = budget.profiles.find(profile);
  if (found != budget.profiles.end()) return std::span<const BudgetRule>(found->second);
  std::string names;
  for (const auto& [name, rules] : budget.profiles) names += (names.empty() ? "" : ", ") + name;
  return invalid_argument("profile {}: expected one of the budget's: {}", profile, names);
}

Measured measure(const BudgetRule& rule, std::span<const ExperimentReport* const> runs) {
  Measured measured = measure_selected(rule, rule.selector, runs);
  if (!measured.value || !rule.over) return measured;
  Measured under = measure_selected(rule, *rule.over, runs);
  if (!under.value) return under;
  measured.samples = std::min(measured.samples, under.samples);
  if (measured.missing.empty()) measured.missing = under.missing;
  if (*under.value == 0)
    return {.value = {}, .samples = measured.samples, .why = "what it is divided by is 0", .missing = ""};
  measured.value = *measured.value / *under.value;
  return measured;
}

Result<PressureVerdict> judge_pressure(const Cohort& cohort, const Budget& budget, const PressureOptions& options) {
  NMC_ASSIGN_OR_RETURN(const std::span<const BudgetRule> rules, rules_of(budget, options.profile));
  PressureVerdict verdict{.profile = options.profile,
                          .verdict = rules.empty() ? Verdict::kInsufficient : Verdict::kPass,
                          .rules = {},
                          .runs = cohort.run_ids(),
                          .apart = cohort.apart,
                          .caveats = {},
                          .command = ""};
  const bool calibrated_here = is_calibrated_for(budget, *cohort.runs.back());
  if (std::string caveat = calibrated_here ? circularity(budget, verdict.runs) : ""; !caveat.empty())
    verdict.caveats.push_back(std::move(caveat));
  for (const BudgetRule& rule : rules) {
    RuleVerdict one = judge(rule, cohort, calibrated_here, options.require_calibrated);
    verdict.verdict = both(verdict.verdict, one.verdict);
    if (options.require_calibrated && rule.is_machines_own() && !one.rule.calibrated)
      verdict.command = calibration_command(options);
    verdict.rules.push_back(std::move(one));
  }
  return verdict;
}

Json pressure_json(const PressureVerdict& verdict) {
  Json json = {{"schema", "nano-mooncake/pressure-budget/v1"},
               {"verdict", verdict_name(verdict.verdict)},
               {"profile", verdict.profile},
               {"runs", verdict.runs},
               {"apart", Json::array()},
               {"caveats", verdict.caveats},
               {"command", verdict.command.empty() ? Json(nullptr) : Json(verdict.command)},
               {"rules", Json::array()}};
  for (const Cohort::Apart& apart : verdict.apart)
    json["apart"].push_back({{"run_id", apart.run_id}, {"why", apart.why}});
  for (const RuleVerdict& one : verdict.rules) {
    Json row = json_of(one.rule);
    row["verdict"] = verdict_name(one.verdict);
    row["value"] = one.measured.value ? Json(rounded(*one.measured.value)) : Json("not_available");
    row["samples"] = one.measured.samples;
    row["reason"] = one.reason;
    json["rules"].push_back(std::move(row));
  }
  return json;
}

Result<Budget> calibrate(const Budget& budget, const std::string& profile, const Cohort& cohort, double margin,
                         std::uint64_t min_runs) {
  NMC_RETURN_IF_ERROR(rules_of(budget, profile));
  Budget calibrated = budget;
  for (auto& [name, rules] : calibrated.profiles) {
    for (BudgetRule& rule : rules) rule.calibrated.reset();
  }
  for (BudgetRule& rule : calibrated.profiles[profile]) {
    if (!rule.is_machines_own()) continue;
    rule.calibrated = BudgetRule::Calibrated{};
    for (const ExperimentReport* run : cohort.runs) {
      const Measured measured = measure(rule, std::span(&run, 1));
      if (measured.value && measured.missing.empty())
        rule.calibrated->runs.emplace_back(run->run_id, rounded(*measured.value));
    }
    if (rule.calibrated->runs.size() < min_runs)
      return not_found("rule {}: {} runs on this machine have what it measures, {} needed", rule.id,
                       rule.calibrated->runs.size(), min_runs);
    const auto [least, most] =
        std::ranges::minmax(rule.calibrated->runs, {}, [](const auto& run) { return run.second; });
    const double limit =
        rule.at_least ? least.second / (1 + margin) - rule.slack : most.second * (1 + margin) + rule.slack;
    rule.calibrated->limit = rounded(limit);
  }
  calibrated.calibration = conditions_of(*cohort.runs.back());
  calibrated.calibration->margin = margin;
  calibrated.calibration->runs = cohort.run_ids();
  return calibrated;
}

Budget with_calibration(Budget budget, const Budget& calibrated) {
  budget.calibration = calibrated.calibration;
  for (auto& [profile, rules] : budget.profiles) {
    const auto others = calibrated.profiles.find(profile);
    for (BudgetRule& rule : rules) {
      rule.calibrated.reset();
      if (others == calibrated.profiles.end()) continue;
      for (const BudgetRule& other : others->second) {
        if (asks_the_same(other, rule)) rule.calibrated = other.calibrated;
      }
    }
  }
  return budget;
}

std::string calibration_command(const PressureOptions& options) {
  return fmt::format("nano-mooncake pressure-budget --index {} --budget {} --profile {} --calibrate --output {}",
                     options.index, options.budget_path, options.profile, kCalibratedBudget);
}

}  // namespace nmc::evidence
