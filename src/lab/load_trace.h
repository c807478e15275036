// A recorded load: when requests came, how long they were and which blocks of their prompts they shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"

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

  std::vector<Nanos> arrivals() const;
};

// JSON lines with `timestamp` (ms), `input_length`, `output_length` (tokens) and `hash_ids`, as the traces that
// Mooncake published have them; other members are ignored. Times are multiplied by `time_scale`: 0.5 is twice as fast.
// A request without input is left out; one with hashes too few or too many for its length is kCorrupt, with the line.
Result<LoadTrace> read_load_trace(const Path& file, double time_scale, std::size_t block_tokens = 512);
Result<LoadTrace> parse_load_trace(std::string_view lines, std::string_view name, double time_scale,
                                   std::size_t block_tokens = 512);

}  // namespace nmc::lab
