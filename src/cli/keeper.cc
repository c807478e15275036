#include "cli/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/serving_settings.h"

extern char** environ;

namespace nmc::cli {
namespace {

// A child that ends is started again at once; one that ends again and again is left alone for longer and longer.
constexpr Nanos kBackOffMin = std::chrono::milliseconds(100), kBackOffMax = std::chrono::seconds(5);
constexpr Nanos kLongLife = std::chrono::seconds(10);  // after which a death is the first one again
constexpr Nanos kEndPatience = std::chrono::seconds(5);
constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr const char* kFailpoints = "NANO_MOONCAKE_FAILPOINTS";

struct Child {
  std::string name;
  std::vector<std::string> arguments;
  pid_t pid = -1;
  UniqueFd process;  // readable once it has ended
  UniqueFd log;      // what it says
  std::string line;  // begun, not ended
  Nanos started{0};
  Nanos next_start{0};
  Nanos back_off{0};
  int starts = 0;
};

// Of the children, where this process is the keeper: what NANO_MOONCAKE_FAILPOINTS says is for the first life only, or
// whoever comes after would die of it again.
std::vector<std::string> environment_of(const Child& child) {
  std::vector<std::string> variables = {"NANO_MOONCAKE_PROCESS=" + child.name};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    if (name == "NANO_MOONCAKE_PROCESS" || (child.starts > 0 && name == kFailpoints)) continue;
    variables.emplace_back(text);
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: only what is safe there.
[[noreturn]] void become(pid_t keeper, int log, char* const* words, char* const* variables) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != keeper) ::_exit(127);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(log, STDOUT_FILENO) < 0 || ::dup2(log, STDERR_FILENO) < 0)
    ::_exit(127);
  ::execve("/proc/self/exe", words, variables);
  ::_exit(127);
}

class KeeperLoop {
 public:
  explicit KeeperLoop(Path folder) : folder_(std::move(folder)) {}

  Result<void> run() {
    while (!ending_) NMC_RETURN_IF_ERROR(turn());
    end_all();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    ::rmdir(folder_.parent_path().c_str());  // unless another server's folder is in it
    return {};
  }

 private:
  Result<void> turn() {
    start_due();
    std::vector<pollfd> watched = {{.fd = STDIN_FILENO, .events = POLLIN}};
    for (const Child& child : children_) {
      if (child.process) watched.push_back({.fd = child.process.get(), .events = POLLIN});
      if (child.log) watched.push_back({.fd = child.log.get(), .events = POLLIN});
    }
    if (::poll(watched.data(), watched.size(), patience_ms()) < 0 && errno != EINTR)
      return Failure(os_error("poll", "for child processes"));
    for (Child& child : children_) {
      forward(child);
      if (has_ended(child, 0)) plan_next(child);
    }
    if (watched[0].revents != 0) NMC_RETURN_IF_ERROR(read_orders());
    return {};
  }

  int patience_ms() const {
    Nanos next = std::chrono::hours(1);
    for (const Child& child : children_) {
      if (child.pid < 0) next = std::min(next, child.next_start - real_clock().now());
    }
    return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(next).count()));
  }

  // Lines of JSON: {"name": "prefill-0", "arguments": ["worker", ...]}. The end of them is the end.
  Result<void> read_orders() {
    std::array<char, 4096> piece;
    const ssize_t got = retry_on_eintr([&] { return ::read(STDIN_FILENO, piece.data(), piece.size()); });
    if (got <= 0) {
      ending_ = true;
      return {};
    }
    orders_.append(piece.data(), static_cast<std::size_t>(got));
    for (std::size_t end; (end = orders_.find('\n')) != std::string::npos; orders_.erase(0, end + 1)) {
      NMC_ASSIGN_OR_RETURN(const Json order, parse_json(orders_.substr(0, end), "an order"));
      const JsonFields fields(order, "an order");
      Child child;
      NMC_ASSIGN_OR_RETURN(child.name, fields.string("name"));
      child.arguments.push_back("nano-mooncake");
      for (const Json& word : order["arguments"]) child.arguments.push_back(word.get<std::string>());
      children_.push_back(std::move(child));
    }
    return {};
  }

  void start_due() {
    for (Child& child : children_) {
      if (child.pid < 0 && real_clock().now() >= child.next_start) start(child);
    }
  }

  void start(Child& child) {
    std::array<int, 2> ends{};
    child.started = real_clock().now();
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return plan_next(child);
    child.log = UniqueFd(ends[0]);
    const UniqueFd log(ends[1]);
    ::fcntl(log.get(), F_SETFL, 0);  // its writes wait
    std::vector<std::string> variables = environment_of(child);
    const std::vector<char*> words = pointers_to(child.arguments), settings = pointers_to(variables);
    const pid_t self = ::getpid();
    ++child.starts;
    child.pid = ::fork();
    if (child.pid == 0) become(self, log.get(), words.data(), settings.data());
    if (child.pid < 0) return plan_next(child);
    child.process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  }

  static bool has_ended(Child& child, int patience) {
    if (child.pid < 0) return false;
    if (child.process) {
      pollfd ended{.fd = child.process.get(), .events = POLLIN};
      if (::poll(&ended, 1, patience) <= 0) return false;
    }
    int status = 0;
    if (retry_on_eintr([&] { return ::waitpid(child.pid, &status, WNOHANG); }) == 0) return false;
    forward(child);
    if (!child.line.empty()) say(child);
    if (WIFSIGNALED(status))
      fmt::print(stderr, "nano-mooncake: {} (process {}) was ended by signal {}\n", child.name, child.pid,
                 WTERMSIG(status));
    else
      fmt::print(stderr, "nano-mooncake: {} (process {}) ended with {}\n", child.name, child.pid, WEXITSTATUS(status));
    child.pid = -1;
    child.process = UniqueFd();
    child.log = UniqueFd();
    return true;
  }

  static void plan_next(Child& child) {
    const Nanos now = real_clock().now();
    const bool again = child.starts > 1 && now - child.started < kLongLife;
    child.back_off = again ? std::clamp(child.back_off * 2, kBackOffMin, kBackOffMax) : Nanos{0};
    child.next_start = now + child.back_off;
  }

  static void say(Child& child) {
    if (!child.line.starts_with("ready ")) fmt::print(stderr, "[{}] {}\n", child.name, child.line);
    child.line.clear();
  }

  static void forward(Child& child) {
    constexpr std::size_t kLineBytesMax = 4096;
    std::array<char, 4096> piece;
    for (ssize_t got; child.log && (got = ::read(child.log.get(), piece.data(), piece.size())) > 0;) {
      for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(got))) {
        if (c == '\n' || child.line.size() == kLineBytesMax) say(child);
        if (c != '\n') child.line.push_back(c);
      }
    }
  }

  // In order, and those that don't listen by force: one may stand still.
  void end_all() {
    for (const Child& child : children_) {
      if (child.pid > 0) ::kill(child.pid, SIGTERM);
    }
    const Stopwatch watch;
    for (Child& child : children_) {
      while (child.pid > 0 && watch.elapsed() < kEndPatience && !is_stopped(child)) {
        if (wait_quietly(child, 20)) break;
      }
      if (child.pid <= 0) continue;
      ::kill(child.pid, SIGKILL);
      retry_on_eintr([&] { return ::waitpid(child.pid, nullptr, 0); });
      child.pid = -1;
    }
  }

  static bool wait_quietly(Child& child, int patience_ms) {
    pollfd ended{.fd = child.process.get(), .events = POLLIN};
    forward(child);
    if (::poll(&ended, 1, patience_ms) <= 0) return false;
    retry_on_eintr([&] { return ::waitpid(child.pid, nullptr, 0); });
    child.pid = -1;
    return true;
  }

  // By a signal, or a debugger.
  static bool is_stopped(const Child& child) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child.pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child.pid;
  }

  const Path folder_;
  std::vector<Child> children_;
  std::string orders_;
  bool ending_ = false;
};

Result<int> run(const Settings& settings) {
  // The terminal's signals are the server's, which then lets go of this. A session of its own and not just a group: the
  // system hangs up a group whose parent dies while one of its processes stands still.
  if (::setsid() < 0) return Failure(os_error("setsid", "for a keeper of processes"));
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  NMC_RETURN_IF_ERROR(KeeperLoop(settings.text("folder")).run());
  return kExitDone;
}

}  // namespace

Command keeper_command() {
  Command command{.name = "keeper",
                  .internal = true,
                  .summary = "keeps a server's child processes",
                  .purpose = "Started by a server of --mode pd-process, from which it takes orders on standard input.",
                  .settings = serving_settings_for(kServingFlags),
                  .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
                  .example = "nano-mooncake keeper --folder DIR",
                  .run = run};
  command.settings.push_back({.name = "folder",
                              .kind = Kind::kText,
                              .placeholder = "DIR",
                              .default_text = ".",
                              .help = "Folder of its children, removed at the end.",
                              .source = Source::kFlagOnly});
  return command;
}

// ---- the server's end ----

Result<std::unique_ptr<Keeper>> Keeper::start(const Path& folder) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake) return Failure(os_error("eventfd", "for a keeper of processes"));
  std::unique_ptr<Keeper> keeper(new Keeper(folder, std::move(wake)));
  {
    MutexLock lock(keeper->mutex_);
    NMC_RETURN_IF_ERROR(keeper->begin_locked());
  }
  keeper->watcher_ = std::thread([self = keeper.get()] { self->watch(); });
  return keeper;
}

Result<void> Keeper::begin_locked() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return Failure(os_error("socketpair", "to a keeper of processes"));
  const UniqueFd theirs(ends[0]);
  orders_ = UniqueFd(ends[1]);
  std::vector<std::string> arguments = {"nano-mooncake", "keeper", "--folder=" + folder_.string()};
  // As for children: what failpoints there are, are for the first life only.
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (starts_ == 0 || !std::string_view(*variable).starts_with(std::string(kFailpoints) + "="))
      variables.emplace_back(*variable);
  }
  const std::vector<char*> words = pointers_to(arguments), settings = pointers_to(variables);
  ++starts_;
  const pid_t process = ::fork();
  if (process < 0) return Failure(os_error("fork", "for a keeper of processes"));
  if (process == 0) {
    if (::dup2(theirs.get(), STDIN_FILENO) < 0) ::_exit(127);
    ::execve("/proc/self/exe", words.data(), settings.data());
    ::_exit(127);
  }
  process_ = process;
  ended_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!ended_) return Failure(os_error("pidfd_open", "for a keeper of processes"));
  for (const std::string& order : kept_) send_locked(order);
  return {};
}

Keeper::~Keeper() {
  const std::uint64_t one = 1;
  retry_on_eintr([&] { return ::write(wake_.get(), &one, sizeof one); });
  if (watcher_.joinable()) watcher_.join();
  MutexLock lock(mutex_);
  orders_ = UniqueFd();
  if (const pid_t process = process_; process > 0) retry_on_eintr([&] { return ::waitpid(process, nullptr, 0); });
}

void Keeper::keep(const std::string& name, const std::vector<std::string>& arguments) {
  MutexLock lock(mutex_);
  kept_.push_back(dump_json(Json{{"name", name}, {"arguments", arguments}}) + "\n");
  send_locked(kept_.back());
}

// To one that has just died: the next one gets it with all others.
void Keeper::send_locked(std::string_view order) {
  const int orders = orders_.get();
  while (!order.empty()) {
    const ssize_t sent = retry_on_eintr([&] { return ::send(orders, order.data(), order.size(), MSG_NOSIGNAL); });
    if (sent < 0) return;
    order.remove_prefix(static_cast<std::size_t>(sent));
  }
}

bool Keeper::rest(Nanos time) const {
  pollfd end{.fd = wake_.get(), .events = POLLIN};
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return ::poll(&end, 1, static_cast<int>(patience)) > 0;
}

void Keeper::watch() {
  Nanos back_off = kBackOffMin;
  for (;;) {
    std::array<pollfd, 2> watched{{{.fd = wake_.get(), .events = POLLIN}, {.fd = -1, .events = POLLIN}}};
    {
      MutexLock lock(mutex_);
      watched[1].fd = ended_.get();
    }
    const Nanos began = real_clock().now();
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    if (watched[1].revents == 0) continue;
    log_warning("the keeper of worker processes has ended, and they with it: all are started again");
    back_off = real_clock().now() - began < kLongLife ? std::min(back_off * 2, kBackOffMax) : kBackOffMin;
    if (rest(back_off)) return;
    MutexLock lock(mutex_);
    const pid_t gone = std::exchange(process_, -1);
    retry_on_eintr([&] { return ::waitpid(gone, nullptr, 0); });
    if (const auto begun = begin_locked(); !begun) {
      log_error("{}", begun.error().message);
      return;
    }
  }
}

}  // namespace nmc::cli
