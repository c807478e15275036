#include "lab/load.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "base/rng.h"

namespace nmc::lab {
namespace {

constexpr Nanos kStopLooks = std::chrono::milliseconds(20);

Nanos now() { return real_clock().now(); }
double to_us(Nanos span) { return static_cast<double>(span.count()) / 1e3; }

// How long the calling thread has waited for a core in its life; 0 where the system doesn't say.
Nanos core_wait_so_far() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/thread-self/schedstat", "re"), &std::fclose);
  unsigned long long ran = 0, waited = 0;
  if (file == nullptr || std::fscanf(file.get(), "%llu %llu", &ran, &waited) != 2) return Nanos(0);
  return Nanos(static_cast<std::int64_t>(waited));
}

// Threads that begin together, of which the first error ends all.
class Crew {
 public:
  explicit Crew(const LoadOptions& options) : options_(options), start_(static_cast<std::ptrdiff_t>(options.threads)) {}

  // Runs `work(thread)` on each; it looks at ended() now and then.
  Result<void> run(const std::function<Result<void>(std::size_t)>& work) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < options_.threads; ++t) {
      threads.emplace_back([&, t] {
        start_.arrive_and_wait();
        Result<void> done = work(t);
        MutexLock lock(mutex_);
        if (!done && !error_) error_ = std::move(done).error();
        if (error_) ended_.store(true);
        if (++finished_ == options_.threads) all_finished_.notify_one();
      });
    }
    wait_for_all();
    for (auto& thread : threads) thread.join();
    MutexLock lock(mutex_);
    if (error_) return Failure(*std::move(error_));
    return {};
  }

  bool ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  void wait_for_all() {
    MutexLock lock(mutex_);
    while (finished_ < options_.threads) {
      all_finished_.wait_until(mutex_, std::chrono::steady_clock::now() + kStopLooks);
      if (!options_.should_stop || ended() || !options_.should_stop()) continue;
      error_ = Error{ErrorCode::kCancelled, "stopped"};
      ended_.store(true);
    }
  }

  const LoadOptions& options_;
  std::barrier<> start_;
  std::atomic<bool> ended_{false};
  Mutex mutex_;
  CondVar all_finished_;
  std::size_t finished_ NMC_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ NMC_GUARDED_BY(mutex_);
};

struct ClosedPart {
  std::vector<double> us;
  Nanos time{0};  // without `between`
  Nanos core_wait{0};
};

Result<void> closed_loop(const LoadOptions& options, std::size_t thread, const Operation& call,
                         const Operation& between, const Crew& crew, ClosedPart& part) {
  const std::size_t calls_max = std::max<std::size_t>(1, options.calls_max / options.threads);
  const Nanos waited = core_wait_so_far(), begin = now();
  Nanos apart{0};
  for (Nanos at = begin; part.us.size() < calls_max && !crew.ended();) {
    NMC_RETURN_IF_ERROR(call(thread));
    const Nanos after = now();
    part.us.push_back(to_us(after - at));
    part.time = after - begin - apart;
    if (part.time >= options.duration && part.us.size() >= options.calls_min) break;
    at = after;
    if (!between) continue;
    NMC_RETURN_IF_ERROR(between(thread));
    at = now();
    apart += at - after;
  }
  part.core_wait = core_wait_so_far() - waited;
  return {};
}

// Returns close to `due`: sleeps most of the way, then lets others run.
void wait_until(Nanos due, const Crew& crew) {
  constexpr Nanos kAwake = std::chrono::microseconds(150);
  while (!crew.ended()) {
    const Nanos left = due - now();
    if (left <= Nanos(0)) return;
    if (left > kAwake) {
      const Nanos step = std::min(left - kAwake, kStopLooks);
      const timespec span{0, static_cast<long>(step.count())};
      ::clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

Result<ClosedRun> run_closed(const LoadOptions& options, const Operation& call, const Operation& between) {
  NMC_REQUIRE(options.threads > 0);
  std::vector<ClosedPart> parts(options.threads);
  Crew crew(options);
  NMC_RETURN_IF_ERROR(crew.run([&](std::size_t t) { return closed_loop(options, t, call, between, crew, parts[t]); }));
  ClosedRun run;
  Nanos busy{0}, waited{0};
  for (const ClosedPart& part : parts) {
    run.us.insert(run.us.end(), part.us.begin(), part.us.end());
    run.seconds = std::max(run.seconds, static_cast<double>(part.time.count()) / 1e9);
    busy += part.time;
    waited += part.core_wait;
  }
  std::sort(run.us.begin(), run.us.end());
  if (busy > Nanos(0))
    run.core_wait = std::min(1.0, static_cast<double>(waited.count()) / static_cast<double>(busy.count()));
  return run;
}

Result<OpenRun> run_open(const LoadOptions& options, double per_second, std::uint64_t seed, const Operation& call) {
  NMC_REQUIRE(options.threads > 0 && per_second > 0, "threads={} per_second={}", options.threads, per_second);
  // Gaps between arrivals are exponential, as of many callers who know nothing of each other.
  std::vector<Nanos> arrivals;
  const std::size_t calls_min = options.calls_min * options.threads;
  double at = 0;
  for (std::uint64_t i = 0; arrivals.size() < options.calls_max; ++i) {
    at += -std::log(1 - to_unit(keyed_random(seed, 0, i))) / per_second * 1e9;
    if (at >= static_cast<double>(options.duration.count()) && arrivals.size() >= calls_min) break;
    arrivals.push_back(Nanos(static_cast<std::int64_t>(at)));
  }
  struct Part {
    std::vector<double> service_us, wait_us;
  };
  std::vector<Part> parts(options.threads);
  std::atomic<std::size_t> next{0};
  Crew crew(options);
  const Nanos begin = now() + std::chrono::milliseconds(1);  // all threads are there by then
  const auto serve = [&](std::size_t t) -> Result<void> {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < arrivals.size();) {
      wait_until(begin + arrivals[i], crew);
      if (crew.ended()) break;
      const Nanos before = now();
      NMC_RETURN_IF_ERROR(call(t));
      parts[t].service_us.push_back(to_us(now() - before));
      parts[t].wait_us.push_back(to_us(before - begin - arrivals[i]));
    }
    return {};
  };
  NMC_RETURN_IF_ERROR(crew.run(serve));
  OpenRun run;
  for (const Part& part : parts) {
    run.service_us.insert(run.service_us.end(), part.service_us.begin(), part.service_us.end());
    run.wait_us.insert(run.wait_us.end(), part.wait_us.begin(), part.wait_us.end());
  }
  std::sort(run.service_us.begin(), run.service_us.end());
  std::sort(run.wait_us.begin(), run.wait_us.end());
  return run;
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<std::size_t>(static_cast<double>(sorted.size()) * q);
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace nmc::lab
