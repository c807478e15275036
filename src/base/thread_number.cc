#include "base/thread_number.h"

#include <set>

#include "base/mutex.h"

namespace nmc {
namespace {

// Of the numbers below `next` those that were given back. Never destroyed: threads may end after main() has.
struct Numbers {
  Mutex mutex;
  std::set<std::uint32_t> free NMC_GUARDED_BY(mutex);
  std::uint32_t next NMC_GUARDED_BY(mutex) = 0;

  std::uint32_t take() {
    MutexLock lock(mutex);
    if (free.empty()) return next++;
    return free.extract(free.begin()).value();
  }
  void give(std::uint32_t number) {
    MutexLock lock(mutex);
    free.insert(number);
  }
};

Numbers& numbers() {
  static auto* const all = new Numbers;
  return *all;
}

// Gives the number back when its thread ends.
struct Holder {
  ~Holder() {
    numbers().give(number);
    internal::own_thread_number = internal::kNoThreadNumber;
  }
  const std::uint32_t number = numbers().take();
};

}  // namespace

std::uint32_t internal::take_thread_number() {
  static thread_local const Holder holder;
  return own_thread_number = holder.number;
}

}  // namespace nmc
