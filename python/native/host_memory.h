// Page-aligned host memory for callers who fill it themselves, and the thread's place on a NUMA machine.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "base/result.h"
#include "base/syscall.h"
#include "store/codes.h"

namespace nmc::python {

// Thread-safe. What was not freed goes with the allocator.
class HostMemAllocator {
 public:
  // The address of `bytes` zeroed bytes; 0 when there is no memory for them or none were asked for.
  std::uint64_t alloc(std::uint64_t bytes);
  // kOk, or kInvalidParams for an address that alloc didn't give.
  store::StoreCode free(std::uint64_t address);

 private:
  Mutex mutex_;
  std::map<std::uint64_t, Mapping> pieces_ NMC_GUARDED_BY(mutex_);
};

// Puts the calling thread on the node's CPUs and its new memory on the node, as far as there is room.
Result<void> bind_to_numa_node(int node);

void bind_host_memory(nanobind::module_& module);

}  // namespace nmc::python
