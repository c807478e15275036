#include "evidence/paired.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/rng.h"

namespace nmc::evidence {
namespace {

constexpr double kNormal975 = 1.959964;
// 97.5 % of Student's t with 1, 2, ... degrees of freedom.
constexpr std::array<double, 30> kStudent975 = {
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985,  2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614,  2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272};

// What makes a percentile interval of k resampled means as wide as Student's: their spread is that of k, not k - 1.
double widening(std::size_t clusters) {
  const std::size_t freedom = clusters - 1;
  const double student = freedom <= kStudent975.size() ? kStudent975[freedom - 1] : kNormal975;
  return std::sqrt(static_cast<double>(clusters) / static_cast<double>(freedom)) * student / kNormal975;
}

double mean_log_ratio(const Cluster& cluster) {
  double sum = 0;
  for (const Pair& pair : cluster) sum += std::log(pair.treatment / pair.control);
  return sum / static_cast<double>(cluster.size());
}

}  // namespace

Effect effect_of(const std::vector<Cluster>& clusters) {
  std::vector<double> logs;
  Effect effect{.clusters = clusters.size()};
  for (const Cluster& cluster : clusters) {
    logs.push_back(mean_log_ratio(cluster));
    effect.pairs += cluster.size();
  }
  std::ranges::sort(logs);  // so that their order doesn't count
  const auto mean = [&](auto&& draw) {
    double sum = 0;
    for (std::size_t i = 0; i < logs.size(); ++i) sum += logs[draw(i)];
    return sum / static_cast<double>(logs.size());
  };
  const double middle = mean([](std::size_t i) { return i; });
  Rng rng(logs.size());
  std::vector<double> resampled(kResamples);
  for (double& one : resampled) one = mean([&](std::size_t) { return rng.below(logs.size()); });
  std::ranges::sort(resampled);
  const double wider = widening(logs.size());
  effect.ratio = std::exp(middle);
  effect.low = std::exp(middle + wider * (resampled[kResamples / 40] - middle));
  effect.high = std::exp(middle + wider * (resampled[kResamples - 1 - kResamples / 40] - middle));
  return effect;
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kWin: return "win";
    case Outcome::kLoss: return "loss";
    case Outcome::kNeutral: return "neutral";
    case Outcome::kInsufficient: break;
  }
  return "insufficient_evidence";
}

Outcome judge_effect(const Effect& effect, double margin) {
  if (effect.clusters < kClustersMin) return Outcome::kInsufficient;
  if (effect.high < 1 - margin) return Outcome::kWin;
  if (effect.low > 1 + margin) return Outcome::kLoss;
  if (effect.low >= 1 - margin && effect.high <= 1 + margin) return Outcome::kNeutral;
  return Outcome::kInsufficient;
}

}  // namespace nmc::evidence
