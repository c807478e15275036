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

// Between fork and exec only what is safe there. The child has no signal of the terminal's: its parent ends it, after
// its clients.
[[noreturn]] void become_master(pid_t parent, int log, char* const* words) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(127);
  if (::dup2(log, STDERR_FILENO) < 0) ::_exit(127);
  ::execv("/proc/self/exe", words);
  ::_exit(127);
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
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Failure(os_error("pipe", "for a master's output"));
  UniqueFd log(ends[0]);
  UniqueFd child_log(ends[1]);
  std::array<std::string, 6> words = {"nano-mooncake",    "master",  "--port=0",
                                      "--metrics-port=0", "--quiet", "--metrics-host=127.0.0.1"};
  std::array<char*, words.size() + 1> pointers{};
  for (std::size_t i = 0; i < words.size(); ++i) pointers[i] = words[i].data();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Failure(os_error("fork", "for a master"));
  if (pid == 0) become_master(parent, child_log.get(), pointers.data());
  OwnMaster master(pid);
  child_log = UniqueFd();
  NMC_ASSIGN_OR_RETURN(master.address_, wait_until_ready(log.get()));
  master.log_ = std::move(log);
  return master;
}

OwnMaster::~OwnMaster() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  retry_on_eintr([&] { return ::waitpid(pid_, nullptr, 0); });
}

}  // namespace nmc::cli
