#include "cli/own_master.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/syscall.h"

namespace nmc::cli {
namespace {

// Between fork and exec only what is safe there.
[[noreturn]] void become_master(pid_t parent, int log, char* const* words) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(127);
  if (::dup2(log, STDERR_FILENO) < 0) ::_exit(127);
  ::execv("/proc/self/exe", words);
  ::_exit(127);
}

// The process between the command and its master: ends the master once, in order, when the command lets go of `leash`,
// or dies, however it dies. (The system's own signal to children comes once for every thread of a parent that dies; a
// second one would end the master before it has cleaned up.) Signals of the terminal reach neither; and a command that
// died reads no warnings any more, which mustn't end the master either.
[[noreturn]] void become_keeper(int leash, int log, char* const* words) {
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  const pid_t own = ::getpid();
  const pid_t master = ::fork();
  if (master < 0) ::_exit(127);
  if (master == 0) become_master(own, log, words);
  ::close(log);
  char nothing;
  retry_on_eintr([&] { return ::read(leash, &nothing, 1); });
  ::kill(master, SIGTERM);
  retry_on_eintr([&] { return ::waitpid(master, nullptr, 0); });
  ::_exit(0);
}

// What it says until the line `ready ADDRESS`; the address. Its last words when it ended instead.
Result<std::string> wait_until_ready(int log) {
  constexpr std::string_view kReady = "ready ";
  std::string line, last;
  for (char c; retry_on_eintr([&] { return ::read(log, &c, 1); }) == 1;) {
    if (c != '\n') {
      line.push_back(c);
      continue;
    }
    if (line.starts_with(kReady)) return line.substr(kReady.size());
    last = std::exchange(line, {});
  }
  return unavailable("the benchmark's own master didn't start: {}", last.empty() ? "it said nothing" : last);
}

}  // namespace

Result<OwnMaster> OwnMaster::start() {
  std::array<int, 2> log_ends{}, leash_ends{};
  if (::pipe2(log_ends.data(), O_CLOEXEC) != 0) return Failure(os_error("pipe", "for a master's output"));
  UniqueFd log(log_ends[0]);
  UniqueFd child_log(log_ends[1]);
  if (::pipe2(leash_ends.data(), O_CLOEXEC) != 0) return Failure(os_error("pipe", "to a master"));
  const UniqueFd child_leash(leash_ends[0]);
  UniqueFd leash(leash_ends[1]);
  std::array<std::string, 6> words = {"nano-mooncake",    "master",  "--port=0",
                                      "--metrics-port=0", "--quiet", "--metrics-host=127.0.0.1"};
  std::array<char*, words.size() + 1> pointers{};
  for (std::size_t i = 0; i < words.size(); ++i) pointers[i] = words[i].data();
  const pid_t keeper = ::fork();
  if (keeper < 0) return Failure(os_error("fork", "for a master"));
  if (keeper == 0) {
    ::close(leash.get());
    become_keeper(child_leash.get(), child_log.get(), pointers.data());
  }
  OwnMaster master(keeper, std::move(leash), std::move(log));
  child_log = UniqueFd();
  NMC_ASSIGN_OR_RETURN(master.address_, wait_until_ready(master.log_.get()));
  return master;
}

OwnMaster::~OwnMaster() {
  if (keeper_ <= 0) return;
  leash_ = UniqueFd();
  retry_on_eintr([&] { return ::waitpid(keeper_, nullptr, 0); });
}

}  // namespace nmc::cli
