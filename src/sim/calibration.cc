#include "sim/calibration.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace nmc::sim {
namespace {

struct Point {
  double x, seconds;
};

// The line p * f(x) + q * g(x) with the least sum of squared relative errors, neither of p and q below 0.
struct Fit {
  double p, q;
};
template <class F, class G>
Fit fit(const std::vector<Point>& points, F f, G g) {
  double ff = 0, fg = 0, gg = 0, f1 = 0, g1 = 0;
  for (const Point& point : points) {
    const double u = f(point.x) / point.seconds, v = g(point.x) / point.seconds;
    ff += u * u;
    fg += u * v;
    gg += v * v;
    f1 += u;
    g1 += v;
  }
  const double determinant = ff * gg - fg * fg;
  if (points.size() > 1 && determinant > 1e-12 * ff * gg) {
    const Fit both{(f1 * gg - g1 * fg) / determinant, (g1 * ff - f1 * fg) / determinant};
    if (both.p >= 0 && both.q >= 0) return both;
    if (both.p < 0) return {0, g1 / gg};
  }
  return {f1 / ff, 0};
}

std::optional<double> positive(const Json& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

bool says(const Json& row, const char* name, std::string_view text) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() && found->get_ref<const std::string&>() == text;
}

// The objects of an array member; none if it isn't one.
std::vector<const Json*> rows_of(const Json& report, const char* name) {
  std::vector<const Json*> rows;
  const auto found = report.find(name);
  if (found == report.end() || !found->is_array()) return rows;
  for (const Json& row : *found) {
    if (row.is_object()) rows.push_back(&row);
  }
  return rows;
}

Result<void> from_engine(const Json& report, std::string_view name, Calibration& calibration) {
  std::vector<Point> prefill;
  double batch_least = INFINITY;
  for (const Json* row : rows_of(report, "prefill")) {
    const auto batch = positive(*row, "batch"), tokens = positive(*row, "prompt_tokens");
    const auto rate = positive(*row, "prefill_tokens_per_s");
    if (!batch || !tokens || !rate || *batch > batch_least) continue;
    if (*batch < batch_least) prefill.clear();
    batch_least = *batch;
    prefill.push_back({*tokens, *tokens / *rate});
  }
  double batch_most = 0;
  for (const Json* row : rows_of(report, "decode")) {
    const auto batch = positive(*row, "batch"), rate = positive(*row, "decode_tokens_per_s");
    if (!batch || !rate || *batch <= batch_most || *batch > 1e6) continue;
    batch_most = *batch;
    calibration.decode_slots = static_cast<std::uint32_t>(std::max(1.0, *batch));
    calibration.decode_token_s = *batch / *rate;
  }
  if (prefill.empty() || batch_most == 0) {
    return invalid_argument("{}: expected rows of prefill and of decode in a bench-engine report", name);
  }
  const Fit found = fit(
      prefill, [](double n) { return n; }, [](double n) { return n * n; });
  calibration.prefill = PrefillCost{0, found.p, found.q};
  return {};
}

Result<void> from_store(const Json& report, std::string_view name, Calibration& calibration) {
  for (const char* carrier : {"tcp", "shm"}) {
    std::vector<Point> reads;
    std::optional<double> lookup_us;
    for (const Json* row : rows_of(report, "rows")) {
      const auto median_us = positive(*row, "p50_us"), bytes = positive(*row, "bytes");
      if (!says(*row, "carrier", carrier) || positive(*row, "threads") != 1.0 || !median_us) continue;
      if (says(*row, "op", "get_into") && bytes) reads.push_back({*bytes, *median_us * 1e-6});
      if (says(*row, "op", "exists")) lookup_us = median_us;
    }
    if (reads.empty() || !lookup_us) continue;
    const Fit found = fit(
        reads, [](double n) { return n; }, [](double) { return 1.0; });
    if (found.p <= 0) break;
    calibration.network_bytes_per_s = 1 / found.p;
    calibration.lookup_s = *lookup_us * 1e-6;
    return {};
  }
  return invalid_argument("{}: expected rows of get_into and exists with threads 1 in a store-bench report", name);
}

}  // namespace

Result<void> calibrate(const Json& report, std::string_view name, Calibration& calibration) {
  if (report.is_object() && says(report, "schema", "nano-mooncake/bench-engine/v1")) {
    return from_engine(report, name, calibration);
  }
  if (report.is_object() && says(report, "schema", "nano-mooncake/store-bench/v1")) {
    return from_store(report, name, calibration);
  }
  return invalid_argument("{}: expected a report of bench-engine or store-bench, by its `schema`", name);
}

}  // namespace nmc::sim
