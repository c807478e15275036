#include "lab/kernel_usage.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <system_error>
#include <vector>

#include "base/memory.h"

namespace nmc::lab {
namespace {

constexpr std::uint64_t kFileBytesMax = 4 << 20;

// Files of procfs have no size and no end until they are read.
std::optional<std::string> read_all(const Path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) return std::nullopt;
  std::string text;
  char piece[4096];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof piece, file.get())) > 0;) {
    text.append(piece, got);
    if (text.size() > kFileBytesMax) return std::nullopt;
  }
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

std::vector<std::string_view> words_of_line(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t", at)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The number behind "name:".
std::optional<std::uint64_t> field_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const std::vector<std::string_view> words = words_of_line(line.substr(name.size() + 1));
    if (!words.empty()) return number_of(words[0]);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> kib_of(const std::optional<std::string>& text, std::string_view name) {
  if (!text) return std::nullopt;
  const auto kib = field_of(*text, name);
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

void add_switches(ProcessUsage& usage, const Path& tasks) {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    const auto status = read_all(task.path() / "status");
    if (!status) continue;  // it has just ended
    usage.voluntary_switches += field_of(*status, "voluntary_ctxt_switches").value_or(0);
    usage.involuntary_switches += field_of(*status, "nonvoluntary_ctxt_switches").value_or(0);
  }
}

}  // namespace

Result<ProcessUsage> read_process_usage(std::int64_t pid, const Path& proc) {
  const Path folder = proc / std::to_string(pid);
  const auto stat = read_all(folder / "stat");
  const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;  // a name may hold anything, also ')'
  if (name_end == std::string::npos) return not_found("no process {}", pid);
  const std::vector<std::string_view> words = words_of_line(std::string_view(*stat).substr(name_end + 1));
  constexpr std::size_t kUser = 11, kSystem = 12, kRssPages = 21;  // proc(5): fields 14, 15 and 24 of all
  if (words.size() <= kRssPages) return corrupt("{}: expected the fields of proc(5)", (folder / "stat").string());
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  ProcessUsage usage;
  usage.user_s = static_cast<double>(number_of(words[kUser])) / ticks;
  usage.system_s = static_cast<double>(number_of(words[kSystem])) / ticks;
  usage.rss_bytes = number_of(words[kRssPages]) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  usage.pss_bytes = kib_of(read_all(folder / "smaps_rollup"), "Pss");
  if (const auto io = read_all(folder / "io")) {
    usage.read_bytes = field_of(*io, "read_bytes");
    usage.write_bytes = field_of(*io, "write_bytes");
  }
  add_switches(usage, folder / "task");
  return usage;
}

std::map<std::string, InterfaceBytes> parse_network(std::string_view text) {
  std::map<std::string, InterfaceBytes> interfaces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::vector<std::string_view> name = words_of_line(line.substr(0, colon));
    const std::vector<std::string_view> numbers = words_of_line(line.substr(colon + 1));
    constexpr std::size_t kReceived = 0, kSent = 8;
    if (name.size() != 1 || numbers.size() <= kSent) continue;
    interfaces[std::string(name[0])] = {number_of(numbers[kReceived]), number_of(numbers[kSent])};
  }
  return interfaces;
}

std::map<std::string, InterfaceBytes> read_network(const Path& proc) {
  return parse_network(read_all(proc / "net" / "dev").value_or(""));
}

HostFacts read_host(const Path& proc) {
  HostFacts facts{.memory_bytes = total_memory()};
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = fmt::format("{} {}", name.sysname, name.release);
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) facts.cores = static_cast<unsigned>(CPU_COUNT(&cores));
  const std::string cpus = read_all(proc / "cpuinfo").value_or("");
  constexpr std::string_view kModel = "model name";
  if (const std::size_t at = cpus.find(kModel); at != cpus.npos) {
    const std::string_view line = std::string_view(cpus).substr(at, cpus.find('\n', at) - at);
    const std::size_t value = line.find_first_not_of(": \t", kModel.size());
    if (value != line.npos) facts.cpu = line.substr(value);
  }
  return facts;
}

}  // namespace nmc::lab
