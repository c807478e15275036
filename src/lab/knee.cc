#include "lab/knee.h"

#include <cmath>

namespace nmc::lab {
namespace {

constexpr double kCloseEnough = 1.1;

}  // namespace

std::optional<double> KneeSearch::knee() const {
  std::optional<double> best;
  for (const auto& [rate, part] : parts_) {
    if (part < part_min_) break;
    best = rate;
  }
  return best;
}

std::optional<double> KneeSearch::fails_at() const {
  for (const auto& [rate, part] : parts_)
    if (part < part_min_) return rate;
  return std::nullopt;
}

std::optional<double> KneeSearch::next(double first, std::size_t measurements_max) const {
  if (parts_.size() >= measurements_max) return std::nullopt;
  if (parts_.empty()) return first;
  const std::optional<double> passes = knee(), fails = fails_at();
  if (!fails) return *passes * 2;
  if (!passes) return *fails / 2;
  if (*fails / *passes <= kCloseEnough) return std::nullopt;
  return std::sqrt(*passes * *fails);
}

}  // namespace nmc::lab
