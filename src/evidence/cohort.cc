#include "evidence/cohort.h"

#include <algorithm>

namespace nmc::evidence {
namespace {

std::string shortened(const std::string& text) { return text.size() > 12 ? text.substr(0, 12) + "..." : text; }

// What sets `other` apart from `own`; "": nothing.
std::string difference(const Provenance& own, const Provenance& other, bool any_source) {
  const auto differs = [](std::string_view what, const std::string& found, const std::string& expected) {
    return fmt::format("{}: {}, expected {}", what, shortened(found), shortened(expected));
  };
  if (own.machine.fingerprint != other.machine.fingerprint)
    return differs("machine", other.machine.fingerprint, own.machine.fingerprint);
  if (own.model.digest != other.model.digest) return differs("model", other.model.digest, own.model.digest);
  if (own.evidence_tier != other.evidence_tier)
    return fmt::format("evidence tier: {}, expected {}", other.evidence_tier, own.evidence_tier);
  if (!any_source && own.build.source_digest != other.build.source_digest)
    return differs("source", other.build.source_digest, own.build.source_digest);
  if (own.build.build_type != other.build.build_type)
    return differs("build type", other.build.build_type, own.build.build_type);
  return "";
}

Result<Cohort> gather(const History& history, std::string_view run_id, bool any_source) {
  const ExperimentReport* own = nullptr;
  for (const ExperimentReport& run : history.runs) {
    if (run.skipped.empty() && (run_id.empty() || run.run_id == run_id)) own = &run;
  }
  if (own == nullptr && run_id.empty()) return not_found("the registry names no run that can be read");
  if (own == nullptr) return not_found("the registry names no run {} that can be read", run_id);
  Cohort cohort{.runs = {}, .apart = {}, .left_out = history.left_out};
  for (const ExperimentReport& run : history.runs) {
    if (!run.skipped.empty() || run.ended_at > own->ended_at) continue;
    const std::string why = difference(own->provenance, run.provenance, any_source);
    if (why.empty())
      cohort.runs.push_back(&run);
    else
      cohort.apart.push_back({run.run_id, why});
  }
  return cohort;
}

}  // namespace

std::vector<std::string> Cohort::run_ids() const {
  std::vector<std::string> ids;
  for (const ExperimentReport* run : runs) ids.push_back(run->run_id);
  return ids;
}

void Cohort::for_each_case(const std::function<void(const ExperimentReport&, const CaseRow&)>& visit) const {
  for (const ExperimentReport* run : runs) {
    for (const CaseRow& row : run->cases) visit(*run, row);
  }
}

Result<Cohort> cohort_of(const History& history, std::string_view run_id) { return gather(history, run_id, false); }

Result<Cohort> runs_of_machine(const History& history) { return gather(history, "", true); }

}  // namespace nmc::evidence
