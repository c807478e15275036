// Arrivals made from a seed: equal options, equal trace, on every machine.
//
//   scan          documents in turn, over and over: the worst for a cache that is smaller than all of them
//   zipf          documents by popularity: number k is asked for in proportion to 1 / k^exponent
//   burst         the same, in bursts: a tenth of the time has half of the requests
//   model-switch  the same, but each quarter of the requests has a namespace of its own: nothing before it is of use
//   multi-turn    conversations: each turn's prompt is the whole talk so far and what the user adds
//
// Of all but the last, a prompt is a document, whose length is drawn once, and a question that is nobody else's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "sim/trace.h"

namespace nmc::sim {

struct WorkloadOptions {
  std::uint64_t seed = 1;
  std::uint32_t requests = 1000;
  double rate_per_s = 1;  // Poisson, on average
  std::uint32_t block_tokens = 512;
  std::uint32_t documents = 100;       // or conversations alive at a time, about
  std::uint32_t prefix_tokens = 8192;  // of a document, or a talk's first prompt: 0.5 to 1.5 times that, evenly
  std::uint32_t suffix_tokens = 512;   // of a question, on average, exponential
  std::uint32_t output_tokens = 256;   // of an answer, on average, exponential
  double zipf_exponent = 1;
  std::uint32_t turns = 8;  // of a talk, on average, geometric
};

std::span<const char* const> workload_names();

// kInvalidArgument for a name that isn't one, with the names, and for prompts that would be longer than a trace has.
Result<Trace> make_workload(std::string_view name, const WorkloadOptions& options);

}  // namespace nmc::sim
