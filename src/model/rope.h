// Frequencies of rotary position embedding.
#pragma once

#include <vector>

#include "model/config.h"

namespace nmc::model {

// Radians per position of each pair of dimensions, [head_dim / 2], the model's rope_scaling applied. In f32 throughout
// like the reference implementation, whose angles at long positions carry this rounding.
std::vector<float> inverse_frequencies(const ModelConfig& config);

}  // namespace nmc::model
