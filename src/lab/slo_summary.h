// What a run of a load says about a server, and whether it may be believed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "evidence/percentiles.h"
#include "lab/load_request.h"
#include "lab/open_loop.h"

namespace nmc::lab {

// What a request has to keep to be good; nothing: that time doesn't matter.
struct SloLimits {
  std::optional<double> ttft_ms, itl_ms, e2e_ms;  // itl: the mean of a request's gaps

  bool any() const { return ttft_ms || itl_ms || e2e_ms; }
  bool is_met_by(const LoadRecord& record) const;
};

struct SummaryOptions {
  Nanos warmup{0};             // requests that were due before aren't counted
  Nanos duration{0};           // of what is counted, after the warm-up
  double max_lateness_ms = 2;  // at p99
  SloLimits limits;
};

struct RunSummary {
  std::size_t requests = 0;  // due within the measured time
  std::size_t ok = 0, errors = 0, rejected = 0, timeouts = 0, unfinished = 0;
  std::size_t good = 0;  // ok and within the limits

  double offered_per_s = 0;  // requests over the measured time
  double sent_per_s = 0;     // as far as they were sent
  double ok_per_s = 0;       // over the time until the last of them was answered, as are the next two
  double input_tokens_per_s = 0, output_tokens_per_s = 0;
  double goodput_per_s = 0;  // good ones over the measured time
  double good_part = 0;      // of all requests

  std::size_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of ok ones
  bool counted_by_server = false;                                      // each of them had its usage
  bool counts_cached = false;                                          // and said how much of the prompt was cached
  double chunks = 0;                                                   // a mean of them an answer
  evidence::Percentiles ttft_ms, itl_ms, e2e_ms;                       // of ok ones
  evidence::Percentiles lateness_ms;                                   // of all that were sent, the warm-up's too
  std::optional<double> lateness_p99_ms;                               // nothing: none was sent
  std::size_t without_connection = 0, failed_here = 0;
  double reader_busy = 0;
  bool realtime_sender = false;

  std::vector<std::string> invalid;  // why it may not be believed; empty: it may
  bool interrupted = false;
  std::vector<std::pair<std::string, std::size_t>> reasons;  // of what wasn't ok, most frequent first, a few
};

RunSummary summarize(const LoopRun& run, const SummaryOptions& options);

}  // namespace nmc::lab
