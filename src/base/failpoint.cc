#include "base/failpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/mutex.h"

namespace nmc {

namespace internal {
std::atomic<bool> failpoints_armed{false};
}

namespace {

constexpr std::uint64_t kDelayMsMax = 60'000;

struct Armed {
  FailpointAction action = FailpointAction::kCount;
  std::uint64_t skip = 0;  // passes before the first that acts
  std::uint64_t left = 0;  // passes that still act; unused when for_ever
  bool for_ever = false;
  std::uint64_t delay_ms = 0;
  std::uint64_t fired = 0;
  std::function<void()> callback;
};

// Process-wide by nature: a failpoint is named from the environment before anything is built.
struct Table {
  Mutex mutex;
  std::map<std::string, Armed, std::less<>> armed NMC_GUARDED_BY(mutex);
  std::string process NMC_GUARDED_BY(mutex);  // this one's name
  int log NMC_GUARDED_BY(mutex) = -1;         // where acts are noted, else -1; open for as long as the process lives
};

Table& table() {
  static Table instance;
  return instance;
}

// Cuts "<mark>N" off the end of `text`. Without the mark `number` stays; false when N is none.
bool cut_number(std::string_view& text, char mark, std::uint64_t& number) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return true;
  const std::string_view digits = text.substr(at + 1);
  text = text.substr(0, at);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size();
}

Result<void> arm_from_text(std::string_view entry, std::string_view process) {
  const std::size_t equals = entry.find('=');
  std::string_view name = entry.substr(0, equals);
  const std::size_t colon = name.find(':');
  const bool ours = colon == std::string_view::npos || name.substr(0, colon) == process;
  if (colon != std::string_view::npos) name.remove_prefix(colon + 1);
  std::string_view action = equals == std::string_view::npos ? "" : entry.substr(equals + 1);
  std::uint64_t times = 1, skipped = 0, delay_ms = 0;
  if (!cut_number(action, '@', skipped) || !cut_number(action, '*', times) || !cut_number(action, ':', delay_ms))
    action = "";
  FailpointAction parsed;
  if (action == "error")
    parsed = FailpointAction::kError;
  else if (action == "exit")
    parsed = FailpointAction::kExit;
  else if (action == "stop")
    parsed = FailpointAction::kStop;
  else if (action == "count")
    parsed = FailpointAction::kCount;
  else if (action == "delay" && delay_ms <= kDelayMsMax)
    parsed = FailpointAction::kDelay;
  else
    return invalid_argument(
        "NANO_MOONCAKE_FAILPOINTS: \"{}\": expected [process:]name=error|exit|stop|count|delay:MS[*times][@skipped]",
        entry);
  if (name.empty()) return invalid_argument("NANO_MOONCAKE_FAILPOINTS: \"{}\": expected a name", entry);
  if (ours) arm_failpoint(name, parsed, times, nullptr, skipped, delay_ms);
  return {};
}

}  // namespace

void arm_failpoint(std::string_view name, FailpointAction action, std::uint64_t times, std::function<void()> callback,
                   std::uint64_t skipped, std::uint64_t delay_ms) {
  Table& all = table();
  MutexLock lock(all.mutex);
  Armed& armed = all.armed[std::string(name)];
  armed.action = action;
  armed.skip = skipped;
  armed.left = times;
  armed.for_ever = times == 0;
  armed.delay_ms = delay_ms;
  armed.callback = std::move(callback);
  internal::failpoints_armed.store(true, std::memory_order_relaxed);
}

void disarm_failpoints() {
  Table& all = table();
  MutexLock lock(all.mutex);
  all.armed.clear();
  internal::failpoints_armed.store(false, std::memory_order_relaxed);
}

Result<void> arm_failpoints_from_environment() {
  const char* text = std::getenv("NANO_MOONCAKE_FAILPOINTS");
  if (text == nullptr) return {};
  const char* process = std::getenv("NANO_MOONCAKE_PROCESS");
  const char* log = std::getenv("NANO_MOONCAKE_FAILPOINTS_LOG");
  {
    Table& all = table();
    MutexLock lock(all.mutex);
    all.process = process == nullptr ? "front" : process;
    if (log != nullptr) all.log = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log != nullptr && all.log < 0)
      return invalid_argument("NANO_MOONCAKE_FAILPOINTS_LOG: {} can't be written", log);
  }
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    NMC_RETURN_IF_ERROR(arm_from_text(rest.substr(0, comma), process == nullptr ? "front" : process));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return {};
}

std::vector<FailpointStatus> failpoint_statuses() {
  Table& all = table();
  MutexLock lock(all.mutex);
  std::vector<FailpointStatus> statuses;
  for (const auto& [name, armed] : all.armed) statuses.push_back({name, armed.fired});
  return statuses;
}

std::uint64_t failpoint_fired(std::string_view name) {
  Table& all = table();
  MutexLock lock(all.mutex);
  const auto it = all.armed.find(name);
  return it == all.armed.end() ? 0 : it->second.fired;
}

std::optional<Error> internal::pass_failpoint(std::string_view name) {
  FailpointAction action;
  std::function<void()> callback;
  std::chrono::milliseconds delay{0};
  {
    Table& all = table();
    MutexLock lock(all.mutex);
    const auto it = all.armed.find(name);
    if (it == all.armed.end()) return std::nullopt;
    Armed& armed = it->second;
    if (armed.skip > 0) {
      --armed.skip;
      return std::nullopt;
    }
    if (!armed.for_ever && armed.left == 0) return std::nullopt;
    if (!armed.for_ever) --armed.left;
    ++armed.fired;
    if (all.log >= 0) {
      const std::string line = fmt::format("{} {} {} {}\n", all.process, ::getpid(), name, armed.fired);
      (void)!::write(all.log, line.data(), line.size());
    }
    action = armed.action;
    callback = armed.callback;
    delay = std::chrono::milliseconds(armed.delay_ms);
  }
  if (callback) callback();
  if (action == FailpointAction::kExit) ::_exit(137);
  if (action == FailpointAction::kDelay) std::this_thread::sleep_for(delay);
  if (action == FailpointAction::kStop) ::kill(::getpid(), SIGSTOP);
  if (action == FailpointAction::kError) {
    return Error{ErrorCode::kUnavailable, fmt::format("injected at {}", name)};
  }
  return std::nullopt;
}

}  // namespace nmc
