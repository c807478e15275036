// What the kernel says of processes and of the network: taken before and after a run, the difference is the run's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace nmc::lab {

// Totals since the process began; memory as it is now. nullopt: the kernel doesn't tell this user.
struct ProcessUsage {
  double user_s = 0, system_s = 0;
  std::uint64_t rss_bytes = 0;
  std::optional<std::uint64_t> pss_bytes;                // pages that several processes have, shared out among them
  std::optional<std::uint64_t> read_bytes, write_bytes;  // of disks
  // Of the threads that there are now.
  std::uint64_t voluntary_switches = 0, involuntary_switches = 0;
};

// kNotFound: there is no such process. `proc`: where procfs is mounted.
Result<ProcessUsage> read_process_usage(std::int64_t pid, const Path& proc = "/proc");

struct InterfaceBytes {
  std::uint64_t received = 0, sent = 0;
};
// By interface. Empty where the kernel doesn't tell.
std::map<std::string, InterfaceBytes> read_network(const Path& proc = "/proc");
std::map<std::string, InterfaceBytes> parse_network(std::string_view text);

struct HostFacts {
  std::string cpu;     // "" where the kernel doesn't tell
  std::string kernel;  // "Linux 6.1.0"
  unsigned cores = 0;  // that this process may use
  std::uint64_t memory_bytes = 0;
};
HostFacts read_host(const Path& proc = "/proc");

}  // namespace nmc::lab
