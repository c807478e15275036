#include "cli/case_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/syscall.h"
#include "cli/store_folder.h"

extern char** environ;

namespace nmc::cli {
namespace {

constexpr Nanos kAftermath = std::chrono::seconds(10);  // for what a killed case leaves to end by itself
constexpr auto kLookInterval = std::chrono::milliseconds(2);
constexpr int kPollMs = 50;

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

std::vector<std::string> environment_with(const std::vector<std::string>& own) {
  std::vector<std::string> variables = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text(*variable);
    const bool replaced = std::ranges::any_of(own, [&](const auto& other) { return name_of(other) == name_of(text); });
    if (!replaced) variables.push_back(text);
  }
  return variables;
}

Result<pid_t> spawn(const CaseProcessOptions& options) {
  std::vector<std::string> words = {"nano-mooncake"};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables = environment_with(options.environment);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  // A group of its own: the terminal's signals are for the suite, which ends the case.
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &files, &attributes, pointers_to(words).data(),
                                  pointers_to(variables).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return Failure(os_error("start", "a case of the experiments", error));
  return pid;
}

// Until it has ended; it is killed where that takes too long.
void await(pid_t pid, const CaseProcessOptions& options, const StopSignal& stop, CaseProcessEnd& end) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const Stopwatch watch;
  for (pollfd watched{.fd = process.get(), .events = POLLIN}; ::poll(&watched, 1, kPollMs) <= 0;) {
    end.timed_out = watch.elapsed() > options.deadline;
    end.interrupted = stop.has_come();
    if (!end.timed_out && !end.interrupted) continue;
    ::kill(pid, SIGKILL);
    break;
  }
  int status = 0;
  retry_on_eintr([&] { return ::waitpid(pid, &status, 0); });
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Ends what ended among the children of this process; whether some are left.
bool have_children() {
  pid_t ended;
  while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
  }
  return ended == 0;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream list(task.path() / "children");
    for (pid_t pid; list >> pid;) found.push_back(pid);
  }
  return found;
}

// What is left a while after its parent is gone is an orphan.
std::uint64_t kill_orphans() {
  const Stopwatch watch;
  while (have_children() && watch.elapsed() < kAftermath) std::this_thread::sleep_for(kLookInterval);
  std::uint64_t killed = 0;
  for (const Stopwatch killing; have_children() && killing.elapsed() < kAftermath;) {
    for (const pid_t pid : children()) killed += ::kill(pid, SIGKILL) == 0;
    std::this_thread::sleep_for(kLookInterval);
  }
  return killed;
}

std::string last_line_of(const Path& log) {
  const Result<std::string> text = read_file(log);
  if (!text) return "";
  const std::size_t last = text->find_last_not_of('\n');
  if (last == std::string::npos) return "";
  const std::size_t begin = text->rfind('\n', last);
  return text->substr(begin == std::string::npos ? 0 : begin + 1, last - (begin == std::string::npos ? -1 : begin));
}

}  // namespace

Result<CaseProcessEnd> run_case_process(const CaseProcessOptions& options, const StopSignal& stop) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return Failure(os_error("prctl", "to wait for processes of a case"));
  NMC_ASSIGN_OR_RETURN(const pid_t pid, spawn(options));
  CaseProcessEnd end;
  await(pid, options, stop, end);
  end.orphan_processes = kill_orphans();
  end.orphan_shm = abandoned_store_folders_of(pid).size();  // whoever would have removed them is gone
  end.last_words = last_line_of(options.log);
  return end;
}

bool end_with_parent(std::int64_t parent) { return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent; }

}  // namespace nmc::cli
