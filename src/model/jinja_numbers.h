// Numbers from text and rounded numbers, as Python has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

// As int(text, base); nullopt: not an integer. Fails beyond 64 bits and for a base that isn't 2, 8, 10 or 16.
Result<std::optional<std::int64_t>> parse_integer(std::string_view text, std::int64_t base);
// As float(text).
std::optional<double> parse_float(std::string_view text);

// As int() of a float; `absent` for NaN. An infinity is an error where the float was the input itself, else `absent`.
Result<Value> truncated(double value, const Value& absent, bool infinity_is_error);

inline constexpr std::int64_t kRoundDigitsMax = 17;
double rounded(double value, std::int64_t digits);  // to the nearest, ties to even, of the exact decimal value
Result<Value> rounded_to(double value, std::int64_t digits, bool up);

}  // namespace nmc::model::jinja
