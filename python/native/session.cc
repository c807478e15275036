#include "session.h"

#include <pthread.h>

#include <optional>
#include <utility>

#include "interpreter_lock.h"

namespace nmc::python {
namespace {

std::atomic<std::uint32_t> fork_count{0};

}  // namespace

std::uint32_t Session::forks() { return fork_count.load(std::memory_order_relaxed); }

void Session::watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
}

Session::Session(std::unique_ptr<store::Client> client)
    : client_(std::move(client)), forks_(forks()), reads_in_place_(client_->reads_in_place()) {}

Session::~Session() {
  if (!usable()) {
    static_cast<void>(client_.release());
    return;
  }
  // Closing waits for the master, and the last owner may be a buffer that Python's collector drops.
  std::optional<Unlocked> unlocked;
  if (PyGILState_Check()) unlocked.emplace();
  client_.reset();
}

// Sequentially consistent on both sides: either the closer sees the call gone, or the call sees the closer.
void Session::end_call() {
  if (calls_.fetch_sub(1) != 1 || !closing_.load()) return;
  const MutexLock lock(mutex_);
  idle_.notify_all();
}

void Session::wait_idle() {
  closing_.store(true);
  const MutexLock lock(mutex_);
  while (calls_.load() != 0) idle_.wait(mutex_);
}

}  // namespace nmc::python
