// A call of the store's API while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "interpreter_lock.h"
#include "session.h"
#include "store_object.h"

namespace nmc::python {

// What takes no message is done with the interpreter lock held when it is as short as this, some 10 us. Giving the lock
// up costs more than it gains: whoever takes it lets this thread wait for longer than the work would have taken.
inline constexpr std::size_t kBytesWithLockMax = 64 << 10;
inline constexpr std::size_t kKeysWithLockMax = 128;

// One call of the API in flight: close() waits until it is gone.
class StoreObject::Call {
 public:
  explicit Call(const StoreObject& object) : session_(object.session_.get()) {
    if (session_ == nullptr) return;
    if (session_->usable()) {
      session_->begin_call();
    } else {
      session_ = nullptr;
    }
  }
  ~Call() {
    if (session_ != nullptr) session_->end_call();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  explicit operator bool() const { return session_ != nullptr; }
  bool reads_in_place() const { return session_->reads_in_place(); }
  // Without the interpreter lock.
  template <typename Work>
  auto run(Work&& work) const {
    const Unlocked unlocked;
    return work(session_->client());
  }
  // exists() or read() of so many keys and bytes at most: with the lock, if that is short.
  template <typename Work>
  auto read(std::size_t keys, std::uint64_t bytes, Work&& work) const {
    if (reads_in_place() && keys <= kKeysWithLockMax && bytes <= kBytesWithLockMax) {
      return work(session_->client());
    }
    return run(std::forward<Work>(work));
  }

  // What comes over the network, each into an object of its own; empty where there is nothing.
  std::vector<nb::bytes> receive(std::span<const std::string_view> keys) const;

 private:
  Session* session_;
};

}  // namespace nmc::python
