// Time as an injected part: product code asks a Clock, tests move a ManualClock by hand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace nmc {

using Nanos = std::chrono::nanoseconds;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Time since an arbitrary origin that never goes back. For durations and deadlines.
  virtual Nanos now() const = 0;
  // Seconds since 1970 UTC. For what a person or a protocol reads.
  virtual std::int64_t unix_seconds() const = 0;
};

// The machine's clock (CLOCK_MONOTONIC and CLOCK_REALTIME). Lives for the whole process.
const Clock& real_clock();

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return Nanos(now_ns_.load(std::memory_order_relaxed)); }
  std::int64_t unix_seconds() const override { return now_ns_.load(std::memory_order_relaxed) / 1'000'000'000; }
  void advance(Nanos by) { now_ns_.fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_ns_{1'000'000'000};
};

inline double to_ms(Nanos duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

// Time between construction and elapsed(), by `clock`.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock = real_clock()) : clock_(clock), start_(clock.now()) {}
  Nanos elapsed() const { return clock_.now() - start_; }
  double elapsed_ms() const { return to_ms(elapsed()); }

 private:
  const Clock& clock_;
  Nanos start_;
};

}  // namespace nmc
