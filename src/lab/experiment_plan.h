// Which cases a run of the experiments has, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "evidence/report.h"
#include "lab/experiment_workload.h"

namespace nmc::lab {

// The words that the flags take. An empty list: what the suite has.
struct PlanOptions {
  std::string suite = "default";  // "smoke", "default", "full"
  std::vector<std::string> workloads, modes, ratios, transfers, lifecycles, faults;
  std::uint64_t repeats = 1;

  // Flags choose the cases, not the suite.
  bool is_custom() const;
};

inline constexpr std::string_view kSuites[] = {"smoke", "default", "full"};
inline constexpr std::string_view kModes[] = {"monolithic", "pd-split", "pd-global"};
inline constexpr std::string_view kTransfers[] = {"shm", "tcp", "direct"};
inline constexpr std::string_view kLifecycles[] = {"cold", "warm", "dram-evict"};

struct PlannedCase {
  evidence::CaseKey key;
  std::uint64_t repeat = 0;
};

// "2p1d" to 2 and 1; each is 1 to 32. kInvalidArgument otherwise.
struct Ratio {
  std::uint64_t prefill = 1, decode = 1;
};
Result<Ratio> parse_ratio(std::string_view text);

// All cases of repeat 0, then those of repeat 1, ... Cases to be compared stand close together, and every other repeat
// runs backwards, so that neither side of a comparison always has the warmer machine. With flags the cases are all
// combinations of what they list, `high-reuse`, all modes, `1p1d`, `shm`, `cold` and `none` where they don't; a fault
// brings the case without it along. kInvalidArgument: there is no such workload or fault, named with those there are.
Result<std::vector<PlannedCase>> plan_cases(const PlanOptions& options, const std::vector<WorkloadSpec>& workloads);

}  // namespace nmc::lab
