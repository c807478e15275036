#include "model/generation_defaults.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace nmc::model {
namespace {

Result<std::optional<float>> number_in(const JsonFields& fields, std::string_view name, double low, double high) {
  if (fields.find(name) == nullptr) return std::optional<float>();
  NMC_ASSIGN_OR_RETURN(const double value, fields.number(name, low, high));
  return std::optional<float>(static_cast<float>(value));
}

}  // namespace

Result<GenerationDefaults> parse_generation_defaults(const JsonFields& fields) {
  constexpr double kAboveZero = std::numeric_limits<float>::min();
  GenerationDefaults defaults;
  NMC_ASSIGN_OR_RETURN(const bool sampled, fields.boolean_or("do_sample", true));
  NMC_ASSIGN_OR_RETURN(defaults.temperature, number_in(fields, "temperature", 0, 2));
  NMC_ASSIGN_OR_RETURN(defaults.top_p, number_in(fields, "top_p", kAboveZero, 1));
  NMC_ASSIGN_OR_RETURN(defaults.min_p, number_in(fields, "min_p", 0, 1));
  NMC_ASSIGN_OR_RETURN(defaults.repetition_penalty, number_in(fields, "repetition_penalty", kAboveZero, 2));
  if (fields.find("top_k") != nullptr) {
    NMC_ASSIGN_OR_RETURN(const std::int64_t top_k,
                         fields.integer("top_k", -1, std::numeric_limits<std::uint32_t>::max()));
    defaults.top_k = top_k < 0 ? 0 : static_cast<std::uint32_t>(top_k);
  }
  if (!sampled) defaults.temperature = 0.0f;
  return defaults;
}

}  // namespace nmc::model
