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

// What takes no message is done with the interpreter lock held when it is as short as this, some 20 us. Giving the lock
// up costs more than it gains: whoever takes it lets this thread wait for longer than the work would have taken.
inline constexpr std::size_t kBytesWithLockMax = 256 << 10;
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
  // exists(), size_of() or read() of so many keys and bytes at most: with the lock, if that is short.
  template <typename Work>
  auto read(std::size_t keys, std::uint64_t bytes, Work&& work) const {
    const bool is_short = keys <= kKeysWithLockMax && bytes <= kBytesWithLockMax;
    if (is_short && session_->client().reads_at_once()) return work(session_->client());
    return run(std::forward<Work>(work));
  }
  // view() of these keys: with the lock, if that is short.
  void view(std::span<const std::string_view> keys, std::span<store::Client::View> views,
            std::span<store::Outcome> outcomes) const {
    const bool is_short = keys.size() <= kKeysWithLockMax;
    if (is_short && session_->client().at_hand(keys, kBytesWithLockMax)) {
      return session_->client().view(keys, views, outcomes);
    }
    run([&](store::Client& client) { client.view(keys, views, outcomes); });
  }
  store::Outcome view(std::string_view key, store::Client::View& view) const {
    store::Outcome outcome = 0;
    this->view({&key, 1}, {&view, 1}, {&outcome, 1});
    return outcome;
  }

  // What comes over the network, each into an object of its own; empty where there is nothing.
  std::vector<nb::bytes> receive(std::span<const std::string_view> keys) const;

 private:
  Session* session_;
};

}  // namespace nmc::python
