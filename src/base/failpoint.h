// Named places where a test or an experiment makes the real code fail. In every build behind one relaxed flag, inert
// unless NANO_MOONCAKE_FAILPOINTS is set when the process starts (or a test arms them); -DNMC_FAILPOINTS=OFF removes
// them. NANO_MOONCAKE_FAILPOINTS="disk.append=error*3,prefill-0:handover.span=exit@20": comma-separated
// [process:]name=action[*times][@skipped], action being error, exit, stop, count or delay:MS. An entry with a process
// is for the one whose NANO_MOONCAKE_PROCESS says so, one without for all of them. With
// NANO_MOONCAKE_FAILPOINTS_LOG=FILE each time one acts a line "process pid name fired" is appended there first, so that
// the counter of a process that it ended can still be read.
//
//   if (auto hit = failpoint("disk.append")) return *std::move(hit);   // Error injected here
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nmc {

enum class FailpointAction {
  kError,  // failpoint() returns Error{kUnavailable, "injected at <name>"}
  kExit,   // the process ends at once, as by kill -9
  kStop,   // the process stands still, as by SIGSTOP, until somebody sends SIGCONT
  kCount,  // only counted
  kDelay,  // takes so many milliseconds longer
};

struct FailpointStatus {
  std::string name;
  std::uint64_t fired = 0;  // times the place was passed while armed, and acted
};

// Arms `name`; acts on `times` passes (0: for ever) after `skipped` more. Thread-safe.
void arm_failpoint(std::string_view name, FailpointAction action, std::uint64_t times = 1,
                   std::function<void()> callback = nullptr, std::uint64_t skipped = 0, std::uint64_t delay_ms = 0);
void disarm_failpoints();
// Reads the environment; a malformed entry is an error naming it. Called once by main.
Result<void> arm_failpoints_from_environment();
std::vector<FailpointStatus> failpoint_statuses();
std::uint64_t failpoint_fired(std::string_view name);

namespace internal {
extern std::atomic<bool> failpoints_armed;
std::optional<Error> pass_failpoint(std::string_view name);
}  // namespace internal

// Whether this build has them.
#if defined(NMC_FAILPOINTS_OFF)
inline constexpr bool kHasFailpoints = false;
#else
inline constexpr bool kHasFailpoints = true;
#endif

#if defined(NMC_FAILPOINTS_OFF)
inline std::optional<Error> failpoint(std::string_view) { return std::nullopt; }
#else
// The injected error, or nothing. `callback`, if armed with one, runs first on this thread.
inline std::optional<Error> failpoint(std::string_view name) {
  if (!internal::failpoints_armed.load(std::memory_order_relaxed)) [[likely]]
    return std::nullopt;
  return internal::pass_failpoint(name);
}
#endif

}  // namespace nmc
