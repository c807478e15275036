#include "evidence/decision.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "evidence/metrics.h"

namespace nmc::evidence {
namespace {

constexpr double kNanosecondMs = 1e-6;  // the finest that reports tell; nothing takes no time at all

CaseKey alone(CaseKey key) {
  key.mode = "monolithic";
  key.transfer = "none";
  key.ratio = "1";
  key.fault = "none";
  return key;
}

const RequestRow* find_request(const CaseRow& row, const std::string& id) {
  const auto found = std::ranges::find(row.requests, id, &RequestRow::id);
  return found == row.requests.end() || found->outcome != "finished" ? nullptr : &*found;
}

double sum_of(const RequestRow& request, std::initializer_list<std::string_view> metrics) {
  double sum = 0;
  for (const std::string_view metric : metrics) sum += request.metric(metric).value_or(0);
  return sum;
}

class DecisionMaker {
 public:
  DecisionMaker(const Cohort& cohort, const DecisionOptions& options)
      : cohort_(cohort), options_(options), reference_(reference_workloads(cohort)) {}

  Decision decide(std::string question, const CaseKey& control, const CaseKey& treatment) const {
    Decision decision{.question = std::move(question),
                      .metric = options_.metric,
                      .control = control,
                      .treatment = treatment,
                      .workload_digest = reference_.at(treatment),
                      .effect = {},
                      .reason = "",
                      .runs = {}};
    std::vector<Cluster> clusters;
    for (const ExperimentReport* run : cohort_.runs) {
      const std::size_t before = clusters.size();
      for (const CaseRow& row : run->cases) {
        if (row.key == treatment && row.done() && row.workload_digest == decision.workload_digest)
          add_cluster(*run, row, decision, clusters);
      }
      if (clusters.size() > before) decision.runs.push_back(run->run_id);
    }
    finish(decision, clusters);
    return decision;
  }

  // Every treatment that `takes` takes, in order.
  template <typename Takes>
  std::vector<CaseKey> treatments(Takes takes) const {
    std::vector<CaseKey> keys;
    for (const auto& [key, digest] : reference_) {
      if (takes(key)) keys.push_back(key);
    }
    return keys;
  }

 private:
  void add_cluster(const ExperimentReport& run, const CaseRow& row, Decision& decision,
                   std::vector<Cluster>& clusters) const {
    const CaseRow* const control = run.find_done(decision.control, row.repeat);
    if (control == nullptr || control->workload_digest != row.workload_digest)
      return lack(decision, Gap::kControl,
                  fmt::format("run {}, repeat {} has no control of the same workload", run.run_id, row.repeat));
    Cluster cluster;
    for (const RequestRow& request : control->requests) {
      if (request.outcome == "finished" && find_request(row, request.id) == nullptr)
        return lack_pair(decision, run, row, request.id);
    }
    for (const RequestRow& request : row.requests) {
      if (request.outcome != "finished") continue;  // refused on both sides
      const RequestRow* const other = find_request(*control, request.id);
      if (other == nullptr) return lack_pair(decision, run, row, request.id);
      if (request.tokens_digest != other->tokens_digest)
        return lack(decision, Gap::kAnswers,
                    fmt::format("run {}, repeat {}: request {} has two answers, so the work differs", run.run_id,
                                row.repeat, request.id));
      cluster.push_back({std::max(other->metric(options_.metric).value_or(0), kNanosecondMs),
                         std::max(request.metric(options_.metric).value_or(0), kNanosecondMs)});
      explain(decision, *other, request);
    }
    if (cluster.empty()) return lack(decision, Gap::kControl, "no request was finished on both sides");
    clusters.push_back(std::move(cluster));
  }

  // Sums, until finish() makes means of them.
  static void explain(Decision& decision, const RequestRow& control, const RequestRow& treatment) {
    decision.saved_tokens += treatment.metric("saved_tokens").value_or(0);
    decision.prefill_saved_ms += sum_of(control, {"prefill_ms"}) - sum_of(treatment, {"prefill_ms"});
    decision.restore_ms += sum_of(treatment, {"lookup_ms", "restore_ms"});
    decision.transfer_ms += sum_of(treatment, {"export_ms", "encode_ms", "transport_ms", "unpack_ms", "import_ms"});
    decision.net_ms += sum_of(control, {"e2e_ms"}) - sum_of(treatment, {"e2e_ms"});
  }

  static void lack_pair(Decision& decision, const ExperimentReport& run, const CaseRow& row, const std::string& id) {
    lack(decision, Gap::kControl,
         fmt::format("run {}, repeat {}: request {} was finished on one side only", run.run_id, row.repeat, id));
  }

  // The first lack is told.
  static void lack(Decision& decision, Gap gap, std::string reason) {
    if (decision.gap == Gap::kAnswers || (decision.gap != Gap::kNone && gap != Gap::kAnswers)) return;
    decision.gap = gap;
    decision.reason = std::move(reason);
  }

  void finish(Decision& decision, const std::vector<Cluster>& clusters) const {
    decision.effect.clusters = clusters.size();
    if (clusters.size() >= 2) decision.effect = effect_of(clusters);
    for (const Cluster& cluster : clusters) {
      if (clusters.size() < 2) decision.effect.pairs += cluster.size();
    }
    const auto pairs = static_cast<double>(std::max<std::size_t>(decision.effect.pairs, 1));
    for (double* sum : {&decision.saved_tokens, &decision.prefill_saved_ms, &decision.restore_ms, &decision.transfer_ms,
                        &decision.net_ms})
      *sum /= pairs;
    if (decision.gap != Gap::kNone) return;
    decision.outcome = judge_effect(decision.effect, options_.margin);
    if (clusters.size() < kClustersMin)
      lack(decision, Gap::kRuns, fmt::format("{} starts of the system, {} needed", clusters.size(), kClustersMin));
    else if (decision.outcome == Outcome::kInsufficient)
      lack(decision, Gap::kSpread,
           fmt::format("the interval {:.3f} to {:.3f} is on both sides of a bound", decision.effect.low,
                       decision.effect.high));
  }

  const Cohort& cohort_;
  const DecisionOptions& options_;
  const std::map<CaseKey, std::string> reference_;
};

std::string flag(const Json& config, const char* member, const char* name) {
  const auto found = config.find(member);
  if (found == config.end() || found->is_null()) return "";
  const std::string value = found->is_string() ? found->get<std::string>() : dump_json(*found);
  return fmt::format(" --{} {}", name, value);
}

// The same work again, with what is to be compared.
std::string experiments_command(const Cohort& cohort, const Decision& decision, std::uint64_t repeats,
                                const std::string& index) {
  const CaseKey& key = decision.treatment;
  const Json& config = cohort.runs.back()->config;
  std::string command =
      fmt::format("nano-mooncake experiments --workload {} --mode {} --mode {} --transfer {} --ratio {} --lifecycle {}",
                  key.workload, decision.control.mode, key.mode, key.transfer, key.ratio, key.lifecycle);
  if (key.fault != "none") command += " --fault " + key.fault;
  command += fmt::format(" --repeats {}", repeats);
  command += flag(config, "seed", "seed") + flag(config, "max_new_tokens", "max-new-tokens") +
             flag(config, "model", "model") + flag(config, "dtype", "dtype") + flag(config, "threads", "threads") +
             flag(config, "dram_bytes", "dram-bytes") + flag(config, "workloads", "workloads");
  return command +
         fmt::format(" --index {} --output results/reports/{}-{}.json", index, decision.question, key.workload);
}

// How many starts would make the interval narrow enough, if their spread stays what it is: it narrows with the root of
// their number. Where the effect lies on a bound no number would.
std::uint64_t starts_needed(const Effect& effect, double margin) {
  constexpr double kStartsMax = 200;
  const double half = std::log(effect.high / effect.low) / 2;
  const double at = std::log(effect.ratio);
  const double nearest = std::min(std::abs(at - std::log(1 - margin)), std::abs(at - std::log(1 + margin)));
  const double factor = nearest > 0 ? half / nearest : kStartsMax;
  return static_cast<std::uint64_t>(
      std::ceil(std::min(static_cast<double>(effect.clusters) * factor * factor, kStartsMax)));
}

}  // namespace

std::optional<CaseKey> control_of(const CaseKey& treatment) {
  if (treatment.mode == "pd-split") return alone(treatment);
  if (treatment.mode != "pd-global") return std::nullopt;
  CaseKey control = treatment;
  control.mode = "pd-split";
  return control;
}

std::map<CaseKey, std::string> reference_workloads(const Cohort& cohort) {
  std::map<CaseKey, std::string> digests;
  cohort.for_each_case([&](const ExperimentReport&, const CaseRow& row) {  // oldest first
    if (row.done()) digests[row.key] = row.workload_digest;
  });
  return digests;
}

std::vector<Decision> decide(const Cohort& cohort, const DecisionOptions& options) {
  const DecisionMaker maker(cohort, options);
  std::vector<Decision> decisions;
  for (const CaseKey& key :
       maker.treatments([](const CaseKey& k) { return k.mode == "pd-global" && k.fault == "none"; })) {
    decisions.push_back(maker.decide("cache", *control_of(key), key));
  }
  for (const CaseKey& key :
       maker.treatments([](const CaseKey& k) { return k.mode == "pd-split" && k.fault == "none"; }))
    decisions.push_back(maker.decide("pd-split", *control_of(key), key));
  return decisions;
}

std::vector<Decision> frontier(const Cohort& cohort, const DecisionOptions& options) {
  const DecisionMaker maker(cohort, options);
  std::vector<Decision> decisions;
  const auto takes = [](const CaseKey& k) {
    return k.mode == "pd-global" && (k.fault == "none" || k.fault == "slow-transfer");
  };
  for (const CaseKey& key : maker.treatments(takes)) decisions.push_back(maker.decide("frontier", alone(key), key));
  return decisions;
}

Json decision_json(const Decision& decision, double margin) {
  const bool measured = decision.effect.clusters >= 2;
  const auto figure = [&](double value) { return measured ? Json(rounded(value)) : Json("not_available"); };
  return {{"question", decision.question},
          {"verdict", outcome_name(decision.outcome)},
          {"reason", decision.reason},
          {"metric", decision.metric},
          {"workload", decision.treatment.workload},
          {"transfer", decision.treatment.transfer},
          {"ratio", decision.treatment.ratio},
          {"lifecycle", decision.treatment.lifecycle},
          {"fault", decision.treatment.fault},
          {"control", decision.control.name()},
          {"treatment", decision.treatment.name()},
          {"effect", figure(decision.effect.ratio)},
          {"low", figure(decision.effect.low)},
          {"high", figure(decision.effect.high)},
          {"margin", margin},
          {"starts", decision.effect.clusters},
          {"pairs", decision.effect.pairs},
          {"saved_tokens", figure(decision.saved_tokens)},
          {"prefill_saved_ms", figure(decision.prefill_saved_ms)},
          {"restore_ms", figure(decision.restore_ms)},
          {"transfer_ms", figure(decision.transfer_ms)},
          {"net_ms", figure(decision.net_ms)},
          {"workload_digest", decision.workload_digest},
          {"runs", decision.runs}};
}

std::vector<MissingEvidence> missing_evidence(const Cohort& cohort, const std::vector<Decision>& decisions,
                                              const DecisionOptions& options, const std::string& index) {
  std::vector<MissingEvidence> missing;
  for (const Decision& decision : decisions) {
    if (decision.outcome != Outcome::kInsufficient) continue;
    const std::size_t starts = decision.effect.clusters;
    MissingEvidence one{.decision = decision, .missing = "", .command = ""};
    std::uint64_t repeats = kClustersMin;
    switch (decision.gap) {
      case Gap::kControl: one.missing = fmt::format("a control of the same work: {}", decision.control.name()); break;
      case Gap::kAnswers:
        one.missing = "equal answers on both sides; more runs don't supply that: see the determinism gate";
        repeats = 0;
        break;
      case Gap::kRuns:
        repeats = kClustersMin - starts;
        one.missing = fmt::format("{} more starts of the system", repeats);
        break;
      case Gap::kSpread:
      case Gap::kNone: {
        const std::uint64_t needed = starts_needed(decision.effect, options.margin);
        repeats = std::max<std::uint64_t>(needed > starts ? needed - starts : 0, kClustersMin);
        one.missing = fmt::format("a narrower interval: about {} more starts at this spread", repeats);
        break;
      }
    }
    if (repeats > 0) one.command = experiments_command(cohort, decision, repeats, index);
    missing.push_back(std::move(one));
  }
  return missing;
}

Json missing_json(const std::vector<MissingEvidence>& missing) {
  Json json = {{"schema", "nano-mooncake/decision-gap/v1"}, {"gaps", Json::array()}};
  for (const MissingEvidence& one : missing) {
    json["gaps"].push_back({{"question", one.decision.question},
                            {"treatment", one.decision.treatment.name()},
                            {"control", one.decision.control.name()},
                            {"reason", one.decision.reason},
                            {"missing", one.missing},
                            {"command", one.command.empty() ? Json(nullptr) : Json(one.command)}});
  }
  return json;
}

}  // namespace nmc::evidence
