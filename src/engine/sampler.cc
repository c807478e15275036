#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/kernels.h"

namespace nmc::engine {
namespace {

struct Candidate {
  float logit;
  TokenId id;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The ids that may be drawn. Ordered by likelihood only where a cut needs the order.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingParams& params) {
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isnan(logits[id])) all.push_back({logits[id], static_cast<TokenId>(id)});
  }
  if (params.top_k > 0 && params.top_k < all.size()) {
    const auto cut = all.begin() + static_cast<std::ptrdiff_t>(params.top_k);
    std::nth_element(all.begin(), cut - 1, all.end(), likelier);
    all.erase(cut, all.end());
  }
  if (params.top_p < 1.0f || params.top_k > 0) std::sort(all.begin(), all.end(), likelier);
  return all;
}

}  // namespace

TokenId sample(std::span<const float> logits, const SamplingParams& params, std::size_t position) {
  NMC_REQUIRE(!logits.empty());
  if (params.temperature <= 0.0f) return static_cast<TokenId>(kernels::argmax(logits));
  std::vector<Candidate> kept = candidates(logits, params);
  if (kept.empty()) return 0;

  float highest = kept[0].logit;
  for (const Candidate& candidate : kept) highest = std::max(highest, candidate.logit);
  std::vector<double> weight(kept.size());
  double total = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(kept[i].logit) - highest) / params.temperature);
    total += weight[i];
  }
  if (params.top_p < 1.0f) {
    double mass = 0;
    std::size_t count = 0;
    while (count < kept.size() && (count == 0 || mass < params.top_p * total)) mass += weight[count++];
    kept.resize(count);
    total = mass;
  }
  double left = to_unit(keyed_random(params.seed, /*stream=*/0, position)) * total;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    left -= weight[i];
    if (left < 0) return kept[i].id;
  }
  return kept.back().id;  // rounding left a sliver
}

}  // namespace nmc::engine
