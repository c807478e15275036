#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace nmc::model {
namespace {

// How much of a frequency is kept: 1 for high ones, 0 for low ones, in between by how many of its turns fit into the
// context the model was first trained on.
float kept_share(const RopeScaling& scaling, float frequency) {
  const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
  const float turns = scaling.original_max_positions / wavelength;
  if (turns < scaling.low_freq_factor) return 0.0f;
  if (turns > scaling.high_freq_factor) return 1.0f;
  return (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
}

float rescaled(const RopeScaling& scaling, std::size_t pair, float frequency) {
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone: return frequency;
    case RopeScaling::Kind::kLinear: return frequency / scaling.factor;
    case RopeScaling::Kind::kDivisors: return frequency / scaling.divisors[pair];
    case RopeScaling::Kind::kLlama3: break;
  }
  const float kept = kept_share(scaling, frequency);
  if (kept == 1.0f) return frequency;
  return (1.0f - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const ModelConfig& config) {
  std::vector<float> frequencies;
  for (std::size_t i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    frequencies.push_back(rescaled(config.rope_scaling, i, 1.0f / std::pow(config.rope_theta, exponent)));
  }
  return frequencies;
}

}  // namespace nmc::model
