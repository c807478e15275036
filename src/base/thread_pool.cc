#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nmc {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr std::uint32_t kClosed = 0x80000000u;

// Long enough to bridge the gap between two kernels of one step, short enough not to burn an idle core.
constexpr int kSpins = 4000;

// With more threads than CPUs, the one that is waited for may need the CPU of the one that waits: then nobody spins.
int spins_for(int threads) { return threads <= available_cpus() ? kSpins : 0; }

}  // namespace

// A worker joins the open job (one more in `members`), takes ranges until none is left, and leaves. The caller closes
// the job before it waits, so a worker that wakes late costs nothing: it can't join, and the next job is its.
struct ThreadPool::Impl {
  using Body = FunctionRef<void(std::size_t, std::size_t, int)>;

  explicit Impl(int threads) : spins(spins_for(threads)) {}

  const int spins;
  Mutex job_mutex;  // one job at a time
  const Body* body = nullptr;
  std::size_t count = 0;
  std::size_t grain = 1;
  alignas(64) std::atomic<std::size_t> next{0};
  alignas(64) std::atomic<std::uint32_t> members{kClosed};  // kClosed, or how many workers are inside
  alignas(64) std::atomic<std::uint32_t> epoch{0};          // bumped for each job; what sleepers wait on
  std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  void take_ranges(int thread) {
    for (;;) {
      const std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + grain, count), thread);
    }
  }

  bool join() {
    std::uint32_t seen = members.load(std::memory_order_relaxed);
    while ((seen & kClosed) == 0) {
      // acquire pairs with the release store of 0 that opens the job: body, count and grain are visible.
      if (members.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    while (!stopping.load(std::memory_order_acquire)) {
      seen = wait_for_job(seen);
      if (!join()) continue;
      take_ranges(thread);
      // release pairs with the caller's acquire in finish(); the last one out wakes it.
      if (members.fetch_sub(1, std::memory_order_release) == (kClosed | 1u)) members.notify_one();
    }
  }

  std::uint32_t wait_for_job(std::uint32_t seen) {
    for (int spin = 0; spin < spins; ++spin) {
      const std::uint32_t now = epoch.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    epoch.wait(seen, std::memory_order_seq_cst);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return epoch.load(std::memory_order_acquire);
  }

  void open() {
    next.store(0, std::memory_order_relaxed);
    members.store(0, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) epoch.notify_all();
  }

  void finish() {
    std::uint32_t inside = members.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
    for (int spin = 0; inside != kClosed; ++spin) {
      if (spin < spins)
        relax();
      else
        members.wait(inside, std::memory_order_acquire);
      inside = members.load(std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>(threads)) {
  NMC_REQUIRE(threads >= 1, "threads={}", threads);
  for (int thread = 1; thread < threads; ++thread) {
    impl_->workers.emplace_back([this, thread] { impl_->work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->epoch.fetch_add(1, std::memory_order_seq_cst);
  impl_->epoch.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::size() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::size_t count, std::size_t grain,
                              FunctionRef<void(std::size_t, std::size_t, int)> body) {
  NMC_REQUIRE(grain > 0);
  if (count == 0) return;
  MutexLock lock(impl_->job_mutex);
  if (impl_->workers.empty() || count <= grain) {
    for (std::size_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(begin + grain, count), 0);
    }
    return;
  }
  impl_->body = &body;
  impl_->count = count;
  impl_->grain = grain;
  impl_->open();
  impl_->take_ranges(0);
  impl_->finish();
}

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace nmc
