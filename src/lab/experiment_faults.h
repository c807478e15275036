// Faults that the experiments inject into their own processes, and what has to come of each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::lab {

struct FaultSpec {
  std::string_view name;
  std::string_view about;
  // "process:failpoint=action", for NANO_MOONCAKE_FAILPOINTS; "": none is needed.
  std::string_view failpoint;
  std::string_view failpoint_direct = "";  // the same where blocks are handed over by name, if it differs
  // What has to come of the requests: "right": finished, with the answers of a run without the fault; "deadline",
  // "cancelled": at least one ends so, and all others are right; "gone": the server ends, and leaves nothing.
  std::string_view expected = "right";
  std::string_view ratio = "2p2d";
  std::string_view lifecycle = "cold";
  std::string_view workload = "high-reuse";
  double request_timeout_s = 0;  // 0: none
  double worker_timeout_s = 5;
  bool cancels = false;      // the first request is cancelled at its second token
  bool quarantines = false;  // each time it acts an entry has to be quarantined
};

std::span<const FaultSpec> fault_specs();
const FaultSpec* find_fault(std::string_view name);  // nullptr: there is none

}  // namespace nmc::lab
