#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool is_about_to_complete(std::span<const TokenId> sequence, std::span<const TokenId> generated) {
  const std::size_t before = sequence.size() - 1;
  return generated.size() >= before && std::ranges::equal(generated.last(before), sequence.first(before));
}

// `logits` as the model has them: what isn't allowed is never drawn, also where nothing else is left.
void keep_allowed(std::vector<float>& values, std::span<const float> logits, std::span<const TokenId> allowed) {
  std::vector<float> kept(values.size(), kNever);
  bool any = false;
  for (const TokenId id : allowed) {
    if (id >= values.size()) continue;
    kept[id] = values[id];
    any = any || values[id] > kNever;
  }
  for (const TokenId id : allowed) {
    if (!any && id < values.size()) kept[id] = logits[id];
  }
  values = std::move(kept);
}

// The logits after bias, penalties and bars.
std::vector<float> changed(std::span<const float> logits, const SamplingParams& params, const History& history) {
  std::vector<float> values(logits.begin(), logits.end());
  const auto is_known = [&](TokenId id) { return id < values.size(); };
  for (const LogitBias& bias : params.logit_bias) {
    if (is_known(bias.id)) values[bias.id] += bias.bias;
  }
  if (params.repetition_penalty != 1.0f) {
    std::vector<bool> seen(values.size());
    for (const auto& tokens : {history.prompt, history.generated}) {
      for (const TokenId id : tokens) {
        if (!is_known(id) || seen[id]) continue;
        seen[id] = true;
        values[id] = values[id] > 0 ? values[id] / params.repetition_penalty : values[id] * params.repetition_penalty;
      }
    }
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    std::vector<bool> seen(values.size());
    for (const TokenId id : history.generated) {
      if (!is_known(id)) continue;
      values[id] -= params.frequency_penalty + (seen[id] ? 0.0f : params.presence_penalty);
      seen[id] = true;
    }
  }
  for (const TokenId id : history.barred) {
    if (is_known(id)) values[id] = kNever;
  }
  for (const std::vector<TokenId>& bad : params.bad_sequences) {
    if (!bad.empty() && is_known(bad.back()) && is_about_to_complete(bad, history.generated))
      values[bad.back()] = kNever;
  }
  if (!params.allowed_ids.empty()) keep_allowed(values, logits, params.allowed_ids);
  return values;
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

TokenId draw(std::span<const float> logits, const SamplingParams& params, std::size_t position) {
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
  if (params.min_p > 0.0f) {  // the likeliest has weight 1
    std::size_t count = 0;
    total = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (weight[i] < params.min_p) continue;
      kept[count] = kept[i];
      weight[count] = weight[i];
      total += weight[count++];
    }
    kept.resize(count);
  }
  double left = to_unit(keyed_random(params.seed, /*stream=*/0, position)) * total;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    left -= weight[i];
    if (left < 0) return kept[i].id;
  }
  // Rounding left a sliver. The last one that may be drawn: others may follow that must not.
  while (kept.size() > 1 && weight[kept.size() - 1] <= 0) kept.pop_back();
  return kept.back().id;
}

}  // namespace

TokenId sample(std::span<const float> logits, const SamplingParams& params, std::size_t position,
               const History& history) {
  NMC_REQUIRE(!logits.empty());
  if (!params.changes_logits() && history.barred.empty()) return draw(logits, params, position);
  return draw(changed(logits, params, history), params, position);
}

std::vector<Logprob> logprobs_of(std::span<const float> logits, TokenId id, std::size_t count) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) highest = std::max(highest, logit);  // skips NaN
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isnan(logit)) sum += std::exp(static_cast<double>(logit) - highest);
  }
  const double log_sum = highest + std::log(sum);
  const auto told = [&](TokenId of) { return Logprob{of, static_cast<float>(logits[of] - log_sum)}; };
  std::vector<Logprob> result = {told(id)};
  if (count == 0) return result;
  std::vector<Candidate> all = candidates(logits, {.top_k = static_cast<std::uint32_t>(count)});
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) result.push_back(told(all[i].id));
  return result;
}

std::uint32_t rank_of(std::span<const float> logits, TokenId id) {
  const float own = logits[id];
  return 1 + static_cast<std::uint32_t>(std::ranges::count_if(logits, [own](float logit) { return logit > own; }));
}

}  // namespace nmc::engine
