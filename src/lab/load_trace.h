// A recorded load: when requests came, how long they were and which blocks of their prompts they shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "sim/trace.h"

namespace nmc::lab {

struct TracedRequest {
  Nanos at{0};  // from the first request
  std::size_t input_tokens = 0;
  std::size_t output_tokens = 0;            // at least 1
  std::vector<std::uint64_t> block_hashes;  // of the prompt's blocks in order; the last one may be cut off
};

struct LoadTrace {
  std::vector<TracedRequest> requests;  // by time
  std::size_t block_tokens = 512;       // that one hash stands for
  std::string digest;                   // sim::digest_of() the trace, in hex; times as they are there
  double time_scale = 1;

  std::vector<Nanos> arrivals() const;
};

// What the simulator reads (sim/trace_reader.h), put in order. Times are multiplied by `time_scale`: 0.5 is twice as
// fast. kInvalidArgument, beyond the reader's own, where that makes them too long.
Result<LoadTrace> read_load_trace(const Path& file, double time_scale, std::uint32_t block_tokens = 512);
Result<LoadTrace> load_trace_of(const sim::Trace& trace, double time_scale);

}  // namespace nmc::lab
