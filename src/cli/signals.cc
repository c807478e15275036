#include "cli/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "cli/exit_code.h"

namespace nmc::cli {
namespace {

// What a handler may touch: lock-free atomics. -1: nobody waits, or the one signal that ends a wait has come.
std::atomic<int> waiting_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  const int saved_errno = errno;
  const int fd = waiting_fd.exchange(-1);
  if (fd < 0) ::_exit(kExitInterrupted);
  const auto value = static_cast<std::uint64_t>(number);
  if (::write(fd, &value, sizeof value) != sizeof value) ::_exit(kExitInterrupted);
  errno = saved_errno;
}

}  // namespace

void exit_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Result<StopSignal> StopSignal::create() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  if (!event) return Failure(os_error("eventfd", "stop signal"));
  exit_on_signals();
  waiting_fd.store(event.get());
  return StopSignal(std::move(event));
}

Result<int> StopSignal::wait() {
  // Waits in poll(), where ThreadSanitizer, too, lets a handler run.
  pollfd event = {event_.get(), POLLIN, 0};
  if (retry_on_eintr([&] { return ::poll(&event, 1, -1); }) < 0) return Failure(os_error("poll", "stop signal"));
  std::uint64_t value = 0;
  const auto size = retry_on_eintr([&] { return ::read(event_.get(), &value, sizeof value); });
  if (size != sizeof value) return Failure(os_error("read", "stop signal"));
  return static_cast<int>(value);
}

bool StopSignal::has_come() const {
  pollfd event = {event_.get(), POLLIN, 0};
  return ::poll(&event, 1, 0) > 0;
}

}  // namespace nmc::cli
