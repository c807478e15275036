#include "lab/load_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace nmc::lab {
namespace {

constexpr std::uint64_t kArrivalStream = 0x61727269;  // draws for anything else don't shift these

// Of the arrival after `at` seconds, the `index`-th of all.
double next_arrival(const PlanOptions& options, std::size_t index, double at) {
  switch (options.arrivals) {
    case Arrivals::kPoisson:
      return at - std::log(1 - to_unit(keyed_random(options.seed, kArrivalStream, index))) / options.per_second;
    // Not a sum, whose error would grow with the run.
    case Arrivals::kUniform: return static_cast<double>(index) / options.per_second;
    case Arrivals::kBursts: return static_cast<double>(index - index % options.burst_size) / options.per_second;
    case Arrivals::kTrace:
    case Arrivals::kClosed: break;
  }
  NMC_ASSERT(false, "arrivals of that kind are not drawn");
  return at;
}

}  // namespace

const char* arrivals_name(Arrivals arrivals) {
  switch (arrivals) {
    case Arrivals::kPoisson: return "poisson";
    case Arrivals::kUniform: return "uniform";
    case Arrivals::kBursts: return "bursts";
    case Arrivals::kTrace: return "trace";
    case Arrivals::kClosed: return "closed";
  }
  return "unknown";
}

std::vector<Nanos> plan_arrivals(const PlanOptions& options) {
  NMC_REQUIRE(options.per_second > 0 && options.burst_size > 0, "per_second={} burst_size={}", options.per_second,
              options.burst_size);
  const auto end = static_cast<double>(options.duration.count());
  std::vector<Nanos> arrivals;
  double at = 0;
  for (std::size_t i = 0; i < options.requests_max; ++i) {
    at = next_arrival(options, i, at);
    if (at * 1e9 >= end) break;
    arrivals.push_back(Nanos(static_cast<std::int64_t>(at * 1e9)));
  }
  return arrivals;
}

std::size_t densest(const std::vector<Nanos>& arrivals, Nanos window) {
  std::size_t most = 0, first = 0;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    while (arrivals[i] - arrivals[first] >= window) ++first;
    most = std::max(most, i - first + 1);
  }
  return most;
}

}  // namespace nmc::lab
