// A client that is set up, shared by the store object, its calls in flight and the buffers it handed out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "store/client.h"

namespace nmc::python {

// Thread-safe. In a forked child it is dead: the socket and the pin table are the parent's, so calls must not use the
// client (usable() is false) and the client is leaked instead of closed.
class Session {
 public:
  explicit Session(std::unique_ptr<store::Client> client);
  // Closes the client, without the interpreter lock.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  store::Client& client() { return *client_; }
  bool usable() const { return forks_ == forks(); }
  bool reads_in_place() const { return reads_in_place_; }

  void begin_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void end_call();
  // Waits for the calls in flight. None begins from here on; not with the interpreter lock, which they need to end.
  void wait_idle();

  // How often this process, or one it descends from, was a forked child.
  static std::uint32_t forks();
  // Once a process, before the first session.
  static void watch_forks();

 private:
  std::unique_ptr<store::Client> client_;
  const std::uint32_t forks_;
  const bool reads_in_place_;  // of the client
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> closing_{false};
  Mutex mutex_;
  CondVar idle_;
};

}  // namespace nmc::python
