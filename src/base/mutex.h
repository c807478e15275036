// std::mutex with Clang's thread-safety attributes, so that the clang preset refuses an access without its lock.
// Members say what guards them (NMC_GUARDED_BY); helpers that need the lock end in _locked (NMC_REQUIRES).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define NMC_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define NMC_THREAD_ATTRIBUTE(x)
#endif
#define NMC_GUARDED_BY(x) NMC_THREAD_ATTRIBUTE(guarded_by(x))
#define NMC_REQUIRES(...) NMC_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define NMC_EXCLUDES(...) NMC_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define NMC_NO_THREAD_SAFETY NMC_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace nmc {

class NMC_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() NMC_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() NMC_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  bool try_lock() NMC_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class NMC_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) NMC_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() NMC_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits need the lock held on entry and hold it again on return. Loop on the condition: wake-ups may be spurious.
class CondVar {
 public:
  void wait(Mutex& mutex) NMC_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when `deadline` passed.
  template <typename Clock, typename Duration>
  bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline) NMC_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace nmc
