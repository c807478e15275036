#include "evidence/cohort.h"

#include <algorithm>

namespace nmc::evidence {
namespace {

std::string shortened(const std::string& text) { return text.size() > 12 ? text.substr(0, 12) + "..." : text; }

// Digests by their beginning, words whole.
std::string described(const Difference& difference) {
  if (difference.what == "kind of evidence")
    return fmt::format("evidence tier: {}, expected {}", difference.found, difference.expected);
  return fmt::format("{}: {}, expected {}", difference.what, shortened(difference.found),
                     shortened(difference.expected));
}

Result<Cohort> gather(const History& history, std::string_view run_id, Alike alike) {
  NMC_ASSIGN_OR_RETURN(const ExperimentReport* const own, find_run(history, run_id));
  Cohort cohort{.runs = {}, .apart = {}, .left_out = history.left_out};
  for (const ExperimentReport& run : history.runs) {
    if (!run.skipped.empty() || run.ended_at > own->ended_at) continue;
    if (const auto differs = difference(own->provenance, run.provenance, alike))
      cohort.apart.push_back({run.run_id, described(*differs)});
    else
      cohort.runs.push_back(&run);
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

Result<Cohort> cohort_of(const History& history, std::string_view run_id) {
  return gather(history, run_id, Alike::kSource);
}

Result<Cohort> runs_of_machine(const History& history) { return gather(history, "", Alike::kBuildType); }

}  // namespace nmc::evidence
