// When requests are sent: the arrivals of a load, planned before it begins, equal for equal seeds on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace nmc::lab {

enum class Arrivals {
  kPoisson,  // gaps are exponential, as of many users who know nothing of each other
  kUniform,  // gaps are equal
  kBursts,   // `burst_size` at once, a burst every burst_size / rate seconds
  kTrace,    // when the requests of a trace came
  kClosed,   // each as soon as one of `concurrency` was answered: no plan
};
const char* arrivals_name(Arrivals arrivals);  // "poisson", "uniform", "bursts", "trace", "closed"

struct PlanOptions {
  Arrivals arrivals = Arrivals::kPoisson;  // not kClosed, kTrace
  double per_second = 1;                   // on average; > 0
  Nanos duration{0};                       // the last arrival is before it
  std::size_t requests_max = 1'000'000;
  std::size_t burst_size = 1;  // > 0
  std::uint64_t seed = 0;
};

// Times from the start of the run, ascending.
std::vector<Nanos> plan_arrivals(const PlanOptions& options);

// The most arrivals of a plan within any `window`: so many connections and bodies have to be ready at once.
std::size_t densest(const std::vector<Nanos>& arrivals, Nanos window);

}  // namespace nmc::lab
