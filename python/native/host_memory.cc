#include "host_memory.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/log.h"

namespace nmc::python {
namespace {

namespace nb = nanobind;

constexpr int kNodesMax = 1024;

bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_char(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

// The kernel's list of CPUs: "0-3,8\n". A node without CPUs has an empty one.
Result<cpu_set_t> parse_cpu_list(std::string_view list) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  std::string_view rest = list.substr(0, list.find('\n'));
  while (!rest.empty()) {
    int first = 0;
    bool good = take_number(rest, first);
    int last = first;
    if (take_char(rest, '-')) good = good && take_number(rest, last);
    if (!good || first < 0 || last < first || last >= CPU_SETSIZE || !(rest.empty() || take_char(rest, ','))) {
      return corrupt("\"{}\" is no list of CPUs", list);
    }
    for (int cpu = first; cpu <= last; ++cpu) CPU_SET(cpu, &cpus);
  }
  return cpus;
}

}  // namespace

std::uint64_t HostMemAllocator::alloc(std::uint64_t bytes) {
  Result<Mapping> piece = Mapping::anonymous(bytes);
  if (bytes == 0 || !piece) return 0;
  const auto address = reinterpret_cast<std::uint64_t>(piece->data());
  const MutexLock lock(mutex_);
  pieces_.emplace(address, std::move(*piece));
  return address;
}

store::StoreCode HostMemAllocator::free(std::uint64_t address) {
  const MutexLock lock(mutex_);
  return pieces_.erase(address) == 1 ? store::StoreCode::kOk : store::StoreCode::kInvalidParams;
}

Result<void> bind_to_numa_node(int node) {
  if (node < 0 || node >= kNodesMax) return invalid_argument("NUMA node {}: expected 0 to {}", node, kNodesMax - 1);
  NMC_ASSIGN_OR_RETURN(const std::string list, read_file(fmt::format("/sys/devices/system/node/node{}/cpulist", node)));
  NMC_ASSIGN_OR_RETURN(const cpu_set_t cpus, parse_cpu_list(list));
  if (CPU_COUNT(&cpus) != 0 && sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    return Failure(os_error("sched_setaffinity", fmt::format("node {}", node)));
  }
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kNodesMax / kBits> nodes = {};
  nodes[node / kBits] = 1UL << (node % kBits);
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), kNodesMax + 1) != 0) {
    return Failure(os_error("set_mempolicy", fmt::format("node {}", node)));
  }
  return {};
}

void bind_host_memory(nb::module_& module) {
  nb::class_<HostMemAllocator>(module, "MooncakeHostMemAllocator",
                               "Page-aligned, zeroed memory outside Python's heap, in huge pages where the system has "
                               "them. What was not freed goes with the allocator.")
      .def(nb::init<>())
      .def("alloc", &HostMemAllocator::alloc, nb::arg("size"), "Address of `size` bytes, or 0.")
      .def(
          "free", [](HostMemAllocator& self, std::uint64_t ptr) { return store::outcome_of(self.free(ptr)); },
          nb::arg("ptr"), "0, or -600 for an address that alloc didn't give.");

  module.def(
      "bind_to_numa_node",
      [](int node) {
        // Placement is an optimisation: a container that forbids it still works.
        if (const Result<void> bound = bind_to_numa_node(node); !bound) {
          log_warning("mooncake: bind_to_numa_node({}): {}", node, bound.error().message);
        }
      },
      nb::arg("node"),
      "Puts this thread on the CPUs of a NUMA node and its new memory there too. Where that can't be, it says so on "
      "standard error and changes nothing.");
}

}  // namespace nmc::python
