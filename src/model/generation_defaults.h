// What a model's makers suggest for drawing tokens: generation_config.json of a checkpoint folder.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "base/result.h"

namespace nmc::model {

// What is absent is the request's business. A plain value.
struct GenerationDefaults {
  std::optional<float> temperature;         // [0, 2]
  std::optional<float> top_p;               // (0, 1]
  std::optional<std::uint32_t> top_k;       // 0: all
  std::optional<float> min_p;               // [0, 1]
  std::optional<float> repetition_penalty;  // (0, 2]

  bool operator==(const GenerationDefaults&) const = default;
};

// Its members of the names that transformers uses; with `do_sample` false, greedy. Others are ignored. Errors name the
// member.
Result<GenerationDefaults> parse_generation_defaults(const JsonFields& fields);

}  // namespace nmc::model
