#include "evidence/phases.h"

#include <algorithm>

namespace nmc::evidence {

PhaseMeans phase_means(std::span<const ExperimentReport* const> runs,
                       const std::function<bool(const CaseRow&)>& takes) {
  PhaseMeans means;
  for (const ExperimentReport* run : runs) {
    for (const CaseRow& row : run->cases) {
      if (!row.done() || !takes(row)) continue;
      for (const RequestRow& request : row.requests) {
        if (request.outcome != "finished") continue;
        ++means.samples;
        for (std::size_t i = 0; i < kPhases.size(); ++i) means.ms[i] += request.metric(kPhases[i].metric).value_or(0);
      }
    }
  }
  for (double& ms : means.ms) ms /= static_cast<double>(std::max<std::uint64_t>(means.samples, 1));
  return means;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace nmc::evidence
