// A front's end of one worker process: connects, and connects again when it was lost; passes commands on without making
// their caller wait, and hears what happens. A local worker that lives but doesn't answer is killed: whoever started
// it starts another.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/syscall.h"
#include "engine/worker_protocol.h"
#include "net/channel.h"

namespace nmc::engine {

struct WorkerAddress {
  std::string name;  // "prefill-0"
  std::string role;  // "prefill", "decode"
  net::Address address;
  bool local = true;  // of this host and ours to kill
};

struct WorkerLinkOptions {
  WorkerAddress worker;
  FrontHello hello;
  std::string token;
  Nanos deadline = std::chrono::seconds(5);  // a worker that says nothing for so long is given up
};

// Called on the link's thread, one after another.
struct WorkerLinkHooks {
  std::function<void(const WorkerHello&)> on_up;
  std::function<void(const Error&)> on_refused;  // it is there, but isn't for us; it will be asked again
  std::function<void(const WorkerFigures&)> on_figures;
  std::function<void(const WorkerEvent&)> on_event;
  std::function<void(const Error&)> on_down;  // after on_up: all that it had is lost
};

// Thread-safe.
class WorkerLink {
 public:
  WorkerLink(WorkerLinkOptions options, WorkerLinkHooks hooks);
  ~WorkerLink();  // stop()
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  void start();
  void stop();  // no hook is called after it returned

  // Sent in order; dropped while the worker isn't up. What the worker answers with an error is that ticket's end
  // (0: is only logged).
  void send(WorkerOp op, std::vector<std::byte> body, std::uint64_t ticket = 0);

  const WorkerAddress& worker() const { return options_.worker; }

 private:
  struct Command {
    WorkerOp op;
    std::vector<std::byte> body;
    std::uint64_t ticket;
  };

  void run();
  void run_once();
  void not_up(const Error& why);
  Result<std::unique_ptr<net::Channel>> connect() const;
  Result<WorkerHello> greet(net::Channel& channel) const;
  Error hear(net::Channel& channel, std::uint64_t session);
  void command_loop(net::Channel& channel);
  void wait_before_next_try();

  const WorkerLinkOptions options_;
  const WorkerLinkHooks hooks_;
  std::thread thread_;

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  bool up_ NMC_GUARDED_BY(mutex_) = false;
  std::deque<Command> commands_ NMC_GUARDED_BY(mutex_);
  net::Channel* events_ NMC_GUARDED_BY(mutex_) = nullptr;  // to be interrupted
  net::Channel* commander_ NMC_GUARDED_BY(mutex_) = nullptr;
  std::deque<WorkerEvent> refused_ NMC_GUARDED_BY(mutex_);  // commands that the worker answered with an error
};

}  // namespace nmc::engine
