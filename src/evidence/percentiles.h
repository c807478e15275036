// Percentiles that say how far they can be trusted.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace nmc::evidence {

// p50, p95, p99 as thousandths, so that ranks are exact.
inline constexpr std::array<unsigned, 3> kReportedPermille = {500, 950, 990};

// Samples that have to lie above a percentile for it to be told: from fewer it is one outlier's value.
inline constexpr std::size_t kSamplesAboveMin = 5;
std::size_t samples_needed(unsigned permille);  // p50 10, p95 100, p99 500

struct Percentile {
  unsigned permille = 500;
  double value = 0;  // the smallest sample that at least so many are not above (nearest rank)
  // The true percentile lies between them with a probability of at least 95 %, whatever the distribution, if samples
  // are independent: two order statistics whose ranks come from the binomial distribution.
  double low = 0, high = 0;
};

struct Percentiles {
  std::size_t samples = 0;
  std::array<std::optional<Percentile>, kReportedPermille.size()> at;  // nothing: too few samples
  double mean = 0, min = 0, max = 0;                                   // 0 without samples
};

Percentiles percentiles_of(std::vector<double> samples);

// Ranks of that interval, counted from 1; `high` may be n + 1: no sample is known to lie above.
struct RankInterval {
  std::size_t low = 1, high = 1;
};
RankInterval rank_interval(std::size_t n, unsigned permille);

}  // namespace nmc::evidence
