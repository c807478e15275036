// What bounds an operation at a size: its fixed cost, or the moving of its bytes.
#pragma once

#include <cstddef>
#include <span>

namespace nmc::lab {

// A size, and how long the operation took there.
struct SizeTime {
  std::size_t bytes = 0;
  double us = 0;  // above 0
};

// time = fixed_us + bytes * us_per_byte.
struct CostLine {
  double fixed_us = 0;
  double us_per_byte = 0;

  // The part of the time at that size which goes into its bytes: 0 to 1.
  double moving_share(std::size_t bytes) const;
};

// The line through the points by least squares of the relative error, so that small sizes weigh as much as large ones;
// neither part below 0. `points` is not empty; all of one size leave the bytes free of cost.
CostLine fit_cost_line(std::span<const SizeTime> points);

enum class Regime { kFixedCost, kBetween, kSaturated };
const char* regime_name(Regime regime);  // "fixed-cost", "between", "saturated"

// "fixed-cost" below a quarter of the time in the bytes, "saturated" above three quarters.
Regime regime_at(const CostLine& line, std::size_t bytes);

}  // namespace nmc::lab
