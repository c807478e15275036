#include "lab/regime.h"

#include "base/check.h"

namespace nmc::lab {

double CostLine::moving_share(std::size_t bytes) const {
  const double moving = us_per_byte * static_cast<double>(bytes);
  return moving > 0 ? moving / (fixed_us + moving) : 0;
}

// With u = 1 / t and v = bytes / t of each point: minimizes the sum of (fixed * u + per_byte * v - 1)^2.
CostLine fit_cost_line(std::span<const SizeTime> points) {
  NMC_REQUIRE(!points.empty());
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const SizeTime& point : points) {
    NMC_REQUIRE(point.us > 0, "us={}", point.us);
    const double u = 1 / point.us, v = static_cast<double>(point.bytes) / point.us;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u1 += u;
    v1 += v;
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant <= 1e-9 * uu * vv) return {u1 / uu, 0};  // one size
  CostLine line{(u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant};
  if (line.fixed_us < 0) line = {0, v1 / vv};
  if (line.us_per_byte < 0) line = {u1 / uu, 0};
  return line;
}

const char* regime_name(Regime regime) {
  switch (regime) {
    case Regime::kFixedCost: return "fixed-cost";
    case Regime::kBetween: return "between";
    case Regime::kSaturated: return "saturated";
  }
  return "";
}

Regime regime_at(const CostLine& line, std::size_t bytes) {
  const double share = line.moving_share(bytes);
  return share < 0.25 ? Regime::kFixedCost : share > 0.75 ? Regime::kSaturated : Regime::kBetween;
}

}  // namespace nmc::lab
