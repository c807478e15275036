// One case of the experiments on a running system: a workload asked of a runtime in the state that the lifecycle names,
// and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/runtime.h"
#include "evidence/report.h"
#include "lab/experiment_faults.h"
#include "lab/experiment_workload.h"
#include "store/store.h"

namespace nmc::lab {

struct CaseOptions {
  evidence::CaseKey key;
  std::uint64_t repeat = 0;
  std::uint64_t seed = 0;
  std::uint32_t vocab = 0;
  const FaultSpec* fault = nullptr;  // of key.fault; null: none
};

// Waits for all requests, and then until the runtime holds nothing for them. The fault is injected by the environment
// of the processes, or here where it is a cancellation; its counter is read by who set that up, so `fault` of the
// result has no count yet. Fails where the lifecycle's state can't be had.
Result<evidence::CaseRow> run_case(engine::Runtime& runtime, store::Store& store, const Workload& workload,
                                   const CaseOptions& options);

}  // namespace nmc::lab
