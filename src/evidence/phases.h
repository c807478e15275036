// The stages of a request, and what each of them waits for or works with: for attributing time.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/report.h"

namespace nmc::evidence {

struct Phase {
  std::string_view metric;    // "queue_ms"
  std::string_view resource;  // in words
};
inline constexpr std::array<Phase, 10> kPhases = {{
    {"queue_ms", "places in the workers' batches"},
    {"lookup_ms", "the index of cached blocks"},
    {"restore_ms", "the disk tier"},
    {"prefill_ms", "compute of prefill workers"},
    {"export_ms", "the prefill worker's blocks"},
    {"encode_ms", "the prefill worker's CPU"},
    {"transport_ms", "the carrier between workers"},
    {"unpack_ms", "the decode worker's CPU"},
    {"import_ms", "free blocks at the decode worker"},
    {"decode_ms", "compute of decode workers"},
}};

// Means over finished requests, in the order of kPhases.
struct PhaseMeans {
  std::array<double, kPhases.size()> ms{};
  std::uint64_t samples = 0;
};
// Of the cases that `takes` takes.
PhaseMeans phase_means(std::span<const ExperimentReport* const> runs, const std::function<bool(const CaseRow&)>& takes);

double median_of(std::vector<double> values);  // of at least one: the lower middle one

}  // namespace nmc::evidence
