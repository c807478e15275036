// How fast a node's store is, by operation, size, threads and carrier, beside memcpy and a raw socket of the same sizes
// in the same run. All cases take turns in each round, so that a disturbance of the machine meets them alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "lab/regime.h"

namespace nmc::lab {

enum class StoreOp {
  kMemcpy,        // reference: one copy of as many bytes, carrier memory
  kRawSocket,     // reference: a request and an answer of as many bytes over a loopback connection, carrier tcp
  kPut,           // a new key
  kGet,           // a view: over shm nothing moves
  kGetInto,       // a copy into the caller's memory
  kBatchGetInto,  // several of those in one call
  kBatchPut,
  kExists,  // of keys that are there; no payload, as the next
  kRemove,
};
const char* store_op_name(StoreOp op);  // "get_into"

enum class StoreCarrier { kMemory, kShm, kTcp };
const char* store_carrier_name(StoreCarrier carrier);  // "memory", "shm", "tcp"

struct StoreBenchOptions {
  std::string server;  // "unix:PATH" or "HOST:PORT" of a master on this host
  std::string token;
  std::vector<std::size_t> sizes = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  std::vector<std::size_t> threads = {1, 2, 4};
  std::vector<StoreCarrier> carriers = {StoreCarrier::kShm, StoreCarrier::kTcp};
  std::size_t rounds = 3;
  std::size_t batch = 32;                 // keys of a batch, fewer where they would be more than kBatchBytesMax
  double load = 0.7;                      // of the closed loop's rate, at which the arrivals of the open one come
  Nanos time = std::chrono::seconds(60);  // for all measurements together, about
  std::function<bool()> should_stop;      // true ends the run with kCancelled; may be empty
  std::function<void(std::string_view)> on_progress;  // may be empty

  static constexpr std::size_t kBatchBytesMax = std::size_t{32} << 20;
};

// Times are the medians of the rounds' quantiles.
struct StoreBenchRow {
  StoreOp op{};
  StoreCarrier carrier{};
  std::size_t bytes = 0;  // of an object
  std::size_t threads = 0;
  std::size_t batch = 1;  // objects a call
  // Closed loop: a thread asks again as soon as it was answered.
  std::size_t samples = 0;  // calls, of all rounds
  double p50_us = 0, p95_us = 0, p99_us = 0;
  double calls_per_s = 0;            // of all threads
  double payload_gb_s = 0;           // payload over time, 10^9 bytes
  std::uint64_t logical_bytes = 0;   // payload that was asked for
  std::uint64_t physical_bytes = 0;  // that was copied in memory or crossed a socket for it, by the client's counters
  double core_wait = 0;              // part of the threads' time in which they had no core: 0 to 1
  // Arrivals at `load` of that rate: how long a call took once it had begun, and how long it waited for its turn.
  double service_p50_us = 0, service_p99_us = 0;
  double wait_p50_us = 0, wait_p99_us = 0;
  Regime regime = Regime::kBetween;
};

struct StoreBenchResult {
  std::size_t cores = 0;
  std::uint64_t segment_bytes = 0;  // that the run's own client brought
  std::vector<StoreBenchRow> rows;  // by op, carrier, threads, size
};

// Objects lie in a segment that the run's client brings and takes away again; their keys begin with "nmc-bench/".
// Errors: the master can't be reached, isn't on this host or has no memory; an object that isn't what was put
// (kCorrupt).
Result<StoreBenchResult> store_bench(const StoreBenchOptions& options);

}  // namespace nmc::lab
