// Drives an operation from several threads and takes its times: in a closed loop, where each thread asks again as soon
// as it was answered, and with arrivals on a schedule, where time spent waiting for a turn shows beside the service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace nmc::lab {

// Called on `threads` threads at once with their number. Nothing: done once; an error ends the run.
using Operation = std::function<Result<void>(std::size_t thread)>;

struct LoadOptions {
  std::size_t threads = 1;
  Nanos duration = std::chrono::milliseconds(100);
  std::size_t calls_min = 3;          // a thread; the run goes on until it has them
  std::size_t calls_max = 100'000;    // of all threads together; the run ends at them
  std::function<bool()> should_stop;  // asked now and then on the calling thread; true ends the run with kCancelled
};

struct ClosedRun {
  std::vector<double> us;  // of each call, sorted
  double seconds = 0;      // from the first call to the last answer, without `between`
  double core_wait = 0;    // part of the threads' time in which they could run and had no core: 0 to 1
};

// `between`, if any, is run by a thread after each of its calls, outside their times.
Result<ClosedRun> run_closed(const LoadOptions& options, const Operation& call, const Operation& between = nullptr);

struct OpenRun {
  std::vector<double> service_us;  // of each call, sorted
  std::vector<double> wait_us;     // from its arrival to its begin, sorted
};

// Calls arrive at random, `per_second` on average, equally for equal seeds; threads take them in order.
Result<OpenRun> run_open(const LoadOptions& options, double per_second, std::uint64_t seed, const Operation& call);

// The q-quantile of sorted samples; 0 of none.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace nmc::lab
