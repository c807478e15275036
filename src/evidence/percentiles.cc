#include "evidence/percentiles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nmc::evidence {
namespace {

constexpr double kOutsideOneSide = 0.025;

// Of exactly k successes in n trials.
double binomial(std::size_t n, std::size_t k, double p) {
  const auto dn = static_cast<double>(n), dk = static_cast<double>(k);
  return std::exp(std::lgamma(dn + 1) - std::lgamma(dk + 1) - std::lgamma(dn - dk + 1) + dk * std::log(p) +
                  (dn - dk) * std::log1p(-p));
}

std::size_t rank_of(std::size_t n, unsigned permille) { return (n * permille + 999) / 1000; }

}  // namespace

std::size_t samples_needed(unsigned permille) {
  const std::size_t above = 1000 - permille;
  return (kSamplesAboveMin * 1000 + above - 1) / above;
}

RankInterval rank_interval(std::size_t n, unsigned permille) {
  // With B samples not above the true percentile, B is binomial, and x(low) <= percentile < x(high) is low <= B < high.
  // From the middle outwards until what is left on either side is small enough.
  const double p = permille / 1000.0;
  const std::size_t middle = std::clamp<std::size_t>(rank_of(n, permille), 1, n);
  double below = 0;  // P(B < low)
  for (std::size_t k = 0; k < middle; ++k) below += binomial(n, k, p);
  RankInterval ranks{.low = middle, .high = middle};
  while (ranks.low > 1 && below > kOutsideOneSide) below -= binomial(n, --ranks.low, p);
  double above = 0;  // P(B >= high)
  for (std::size_t k = middle; k <= n; ++k) above += binomial(n, k, p);
  while (ranks.high <= n && above > kOutsideOneSide) above -= binomial(n, ranks.high++, p);
  return ranks;
}

Percentiles percentiles_of(std::vector<double> samples) {
  Percentiles result{.samples = samples.size()};
  if (samples.empty()) return result;
  std::sort(samples.begin(), samples.end());
  result.min = samples.front();
  result.max = samples.back();
  result.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  for (std::size_t i = 0; i < kReportedPermille.size(); ++i) {
    const unsigned permille = kReportedPermille[i];
    if (samples.size() < samples_needed(permille)) continue;
    const RankInterval ranks = rank_interval(samples.size(), permille);
    result.at[i] = Percentile{.permille = permille,
                              .value = samples[rank_of(samples.size(), permille) - 1],
                              .low = samples[ranks.low - 1],
                              .high = samples[std::min(ranks.high, samples.size()) - 1]};
  }
  return result;
}

}  // namespace nmc::evidence
