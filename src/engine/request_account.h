// What every runtime keeps account of alike: who gets in, what a request took, and the totals.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "base/result.h"
#include "engine/request.h"
#include "engine/runtime.h"

namespace nmc::engine {

// Counts a request that came. kUnavailable: draining; kResourceExhausted: the queue is full. Else it may be queued.
Result<void> count_arrival(RuntimeCounters& counters, bool draining, std::size_t queued, std::size_t max_queue);

// Fills what is known only at the end. `first_token`: 0 where there was none.
void measure_ending(RequestMetrics& metrics, std::size_t output_tokens, Nanos submitted, Nanos first_token, Nanos now);

// Counts a request that ended, once measure_ending() was called.
void count_ending(RuntimeCounters& counters, FinishReason reason, const RequestMetrics& metrics, bool was_admitted);

}  // namespace nmc::engine
