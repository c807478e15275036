#include "lab/experiment_faults.h"

#include <algorithm>

namespace nmc::lab {
namespace {

constexpr FaultSpec kFaults[] = {
    {.name = "prefill-crash",
     .about = "a prefill worker dies before its hand-over",
     .failpoint = "prefill-0:handover.begin=exit"},
    {.name = "transfer-crash",
     .about = "a prefill worker dies in the middle of its hand-over",
     .failpoint = "prefill-0:handover.span=exit@1",
     .failpoint_direct = "prefill-0:handover.send=exit"},
    {.name = "decode-crash",
     .about = "a decode worker dies before its first token",
     .failpoint = "decode-0:worker.step=exit"},
    {.name = "worker-stall",
     .about = "a decode worker stands still until it is given up and replaced",
     .failpoint = "decode-0:worker.step=stop",
     .worker_timeout_s = 1},
    {.name = "timeout",
     .about = "the only decode worker stands still for longer than all requests may take",
     .failpoint = "decode-0:worker.step=stop",
     .expected = "deadline",
     .ratio = "1p1d",
     .request_timeout_s = 0.25,
     .worker_timeout_s = 4},
    {.name = "cancellation",
     .about = "a client leaves after the second token",
     .failpoint = "",
     .expected = "cancelled",
     .ratio = "1p1d",
     .cancels = true},
    {.name = "shm-cleanup",
     .about = "the server is killed while KV is in shared memory",
     .failpoint = "front:experiment.token=exit@5",
     .expected = "gone",
     .ratio = "1p1d"},
    {.name = "corrupt-entry",
     .about = "blocks read back from disk are damaged",
     .failpoint = "master:disklog.damage=error*2",
     .ratio = "1p1d",
     .lifecycle = "dram-evict",
     .quarantines = true},
    {.name = "slow-transfer",
     .about = "each hand-over takes at least 400 ms longer",
     .failpoint = "prefill-0:handover.send=delay:400*0",
     .ratio = "1p1d",
     .workload = "long-prompt"},
};

}  // namespace

std::span<const FaultSpec> fault_specs() { return kFaults; }

const FaultSpec* find_fault(std::string_view name) {
  const auto* const found = std::ranges::find(kFaults, name, &FaultSpec::name);
  return found == std::end(kFaults) ? nullptr : found;
}

}  // namespace nmc::lab
