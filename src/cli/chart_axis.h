// From numbers to places on an axis. Pure, and sound for any numbers within kChartNumberMax.
#pragma once

#include <string>
#include <vector>

#include "cli/chart.h"

namespace nmc::cli {

struct Tick {
  double at;  // 0 to 1
  std::string label;
};

class AxisScale {
 public:
  // Fits `values`; an axis that isn't logarithmic and has no negative ones begins at 0.
  AxisScale(const Axis& axis, std::vector<double> values);

  double at(double value) const;  // 0 to 1
  // At the values themselves where those are few, else at round ones. Never more than a dozen.
  std::vector<Tick> ticks(bool at_values) const;

 private:
  double place(double value) const;
  Tick tick(double value) const;

  Axis axis_;
  std::vector<double> values_;  // distinct, ascending
  double low_ = 0, high_ = 1;   // as place() has them
};

}  // namespace nmc::cli
