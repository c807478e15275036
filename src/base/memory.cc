#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "base/files.h"

namespace nmc {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kPseudoFileBytesMax = 1u << 20;

// A cgroup v2 file that holds one number, or "max".
std::uint64_t cgroup_number(const char* path) {
  const auto text = read_file(path, kPseudoFileBytesMax);
  std::uint64_t value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc()) return kUnknown;
  return value;
}

std::uint64_t left_of_container_limit() {
  const std::uint64_t limit = cgroup_number("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = cgroup_number("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return limit - std::min(used, limit);
}

std::uint64_t of_the_machine(std::string_view field) {
  const auto text = read_file("/proc/meminfo", kPseudoFileBytesMax);
  return text ? meminfo_field(*text, field).value_or(kUnknown) : kUnknown;
}

}  // namespace

Result<std::uint64_t> meminfo_field(std::string_view meminfo, std::string_view name) {
  while (!meminfo.empty()) {
    std::string_view line = meminfo.substr(0, meminfo.find('\n'));
    meminfo.remove_prefix(std::min(line.size() + 1, meminfo.size()));
    if (!line.starts_with(name) || line.substr(name.size()).substr(0, 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    std::uint64_t kib = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), kib);
    if (error != std::errc() || std::string_view(end, line.data() + line.size()) != " kB" || kib > kUnknown / 1024) {
      return corrupt("{} in meminfo: expected a number of kB, got \"{}\"", name, line);
    }
    return kib * 1024;
  }
  return not_found("no {} in meminfo", name);
}

std::uint64_t available_memory() { return std::min(of_the_machine("MemAvailable"), left_of_container_limit()); }

std::uint64_t total_memory() {
  return std::min(of_the_machine("MemTotal"), cgroup_number("/sys/fs/cgroup/memory.max"));
}

}  // namespace nmc
