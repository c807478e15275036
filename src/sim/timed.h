// A trace against a serving system in simulated time: a cache in memory and on disk behind a network, prefill workers
// and decode slots, all shared.
//
// A request arrives, waits for its lookup, and finds the cached blocks from its first on; what is being computed for
// another request isn't there yet. The found blocks are read from disk, where they lie only there, and brought over the
// network; then the rest is computed by a prefill worker, whose end is the first token. Now the prompt's blocks are
// touched or taken in, first to last; what memory evicts goes to disk. The computed KV goes over the network to where
// it is decoded, and the request leaves with its last token.
//
// With a prefetch deadline, a request that has waited so long for its blocks goes on with those that have arrived
// whole.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/instant.h"
#include "sim/station.h"
#include "sim/trace.h"

namespace nmc::sim {

struct TimedOptions {
  CostModel cost;
  std::uint64_t memory_blocks = kUnbounded;
  std::uint64_t disk_blocks = 0;
  double time_scale = 1;  // of the gaps between arrivals: 0.5 is twice the rate
  double lookup_s = 0.001;
  double network_bytes_per_s = 12.5e9;
  double disk_bytes_per_s = 3e9;
  double decode_token_s = 0.02;
  std::uint32_t prefill_workers = 1;
  std::uint32_t decode_slots = 64;
  QueuePolicy queue_policy =
      QueuePolicy::kFcfs;  // of prefill and network; disk and decode are first come, first served
  std::optional<double> prefetch_deadline_s;
  double slo_ttft_s = 30;
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, mean = 0, max = 0;  // nearest rank
  std::uint64_t samples = 0;
};
Percentiles percentiles_of(std::vector<double> values);

struct StationReport {
  const char* name = "";
  std::uint32_t servers = 0;
  Station::Totals totals;
  double utilization = 0;   // busy time over time, of all servers
  double waiting_mean = 0;  // jobs
  std::uint64_t waiting_max = 0;
  std::vector<double> waiting;  // means of equal intervals
};

struct TimedResult {
  HitCounts hits;  // hit: found, and arrived before any deadline
  std::uint64_t found_blocks = 0;
  std::uint64_t found_disk_blocks = 0;  // of these, not in memory
  std::uint64_t in_flight_blocks = 0;   // not found, while being computed for another request
  std::uint64_t fetches_cut = 0;        // by the prefetch deadline
  std::uint64_t computed_tokens = 0;
  std::uint64_t network_read_bytes = 0, network_written_bytes = 0, disk_read_bytes = 0, disk_written_bytes = 0;
  std::uint64_t inserted_bytes = 0, evicted_bytes = 0, resident_bytes = 0;  // of memory
  Percentiles ttft_ms, e2e_ms;
  double makespan_s = 0;  // from the first arrival to the last departure
  std::uint64_t requests_in_slo = 0;
  double interval_s = 0;                  // of the series below
  std::array<StationReport, 4> stations;  // network, prefill, decode, disk
};

// kInvalidArgument for a policy that isn't one. The same bits for the same input. Checks as it goes that nothing is
// lost: arrivals are departures and requests at one place each, bytes taken in are bytes evicted and bytes here.
Result<TimedResult> simulate_timed(const Trace& trace, std::string_view policy, const TimedOptions& options);

}  // namespace nmc::sim
