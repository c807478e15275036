// One pool per process for data-parallel kernels. The caller works too, so a pool of N uses N - 1 threads of its own.
// Between jobs workers spin briefly (a decode step is hundreds of jobs of some tens of microseconds), then sleep.
// Which thread does which part never changes a result: parts are independent.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace nmc {

// A view of a callable for the length of a call; never stored.
template <typename Signature>
class FunctionRef;
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& function)  // NOLINT: implicit by design, like std::function
      : object_(const_cast<void*>(static_cast<const void*>(&function))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Thread-safe: jobs from several threads run one after another.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(begin, end, thread) for consecutive ranges of at most `grain` items that together cover [0, count);
  // ranges are handed out as threads become free. `thread` is in [0, size()), for scratch memory. Returns when all are
  // done; what they wrote is visible to the caller. Not reentrant from inside `body`.
  void parallel_for(std::size_t count, std::size_t grain,
                    FunctionRef<void(std::size_t begin, std::size_t end, int thread)> body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// CPUs this process may run on (affinity mask respected), at least 1.
int available_cpus();

}  // namespace nmc
