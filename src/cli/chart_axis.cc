#include "cli/chart_axis.h"

#include <algorithm>
#include <cmath>

#include "cli/setting.h"

namespace nmc::cli {
namespace {

constexpr double kSmallest = 1e-30;
constexpr std::size_t kTicksMax = 8;

// The least of 1, 2, 5 times a power of ten that makes at most kTicksMax steps of `span`.
double round_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / kTicksMax)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (span / (power * times) <= kTicksMax) return power * times;
  }
  return power * 10;
}

}  // namespace

AxisScale::AxisScale(const Axis& axis, std::vector<double> values) : axis_(axis), values_(std::move(values)) {
  std::sort(values_.begin(), values_.end());
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
  if (axis_.log) std::erase_if(values_, [](double value) { return value < kSmallest; });
  if (values_.empty()) values_ = {1};
  low_ = place(values_.front());
  high_ = place(values_.back());
  if (!axis_.log) low_ = std::min(low_, 0.0), high_ = std::max(high_, 0.0);
  if (axis_.log) {  // so that nothing lies on the edge
    const double margin = std::max((high_ - low_) * 0.04, 0.05);
    low_ -= margin, high_ += margin;
  }
  if (high_ - low_ < kSmallest) high_ = low_ + 1;
}

double AxisScale::place(double value) const { return axis_.log ? std::log10(std::max(value, kSmallest)) : value; }

double AxisScale::at(double value) const { return std::clamp((place(value) - low_) / (high_ - low_), 0.0, 1.0); }

Tick AxisScale::tick(double value) const {
  const bool whole = axis_.bytes && value >= 0 && value < 1e18 && value == std::floor(value);
  return {at(value), whole ? format_bytes(static_cast<std::uint64_t>(value)) : chart_number(value)};
}

std::vector<Tick> AxisScale::ticks(bool at_values) const {
  std::vector<Tick> ticks;
  if (at_values && values_.size() <= kTicksMax) {
    for (const double value : values_) ticks.push_back(tick(value));
    return ticks;
  }
  if (!axis_.log) {
    const double step = round_step(high_ - low_);
    const double first = std::ceil(low_ / step);
    for (std::size_t i = 0; i <= kTicksMax; ++i) {
      const double value = (first + static_cast<double>(i)) * step;
      if (value <= high_ + step * 1e-9) ticks.push_back(tick(value));
    }
    return ticks;
  }
  const auto first = static_cast<int>(std::ceil(low_)), last = static_cast<int>(std::floor(high_));
  const int stride = std::max(1, (last - first) / static_cast<int>(kTicksMax) + 1);
  for (int power = first; power <= last; power += stride) ticks.push_back(tick(std::pow(10, power)));
  if (ticks.size() >= 2) return ticks;
  ticks.clear();  // within one decade
  for (const double value : {values_.front(), values_.back()}) {
    if (ticks.empty() || at(value) - ticks.back().at > 0.05) ticks.push_back(tick(value));
  }
  return ticks;
}

}  // namespace nmc::cli
