// Internal to the load generator: reads all answers on one thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/syscall.h"
#include "lab/load_exchange.h"

namespace nmc::lab {

// Thread-safe.
class AnswerReader {
 public:
  // `on_end` gets each exchange back on the reader's thread, ended; its connection, if it is still good, is in it.
  using OnEnd = std::function<void(ExchangePtr)>;

  // `start`: what the times of records count from. An exchange has `timeout` from its planned time.
  static Result<std::unique_ptr<AnswerReader>> create(Nanos start, Nanos timeout, OnEnd on_end);
  // Exchanges that are open are handed back unfinished.
  ~AnswerReader();
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  // An exchange that was sent, at least in part.
  void add(ExchangePtr exchange);

  // CPU time of the thread so far.
  Nanos cpu_time() const { return Nanos(cpu_ns_.load(std::memory_order_relaxed)); }

 private:
  struct Open {
    ExchangePtr exchange;
    std::vector<std::pair<std::string, Nanos>> pieces;  // received, not looked at
    bool closed = false;
    bool watches_output = false;
  };
  using OpenMap = std::map<std::size_t, Open>;  // by index of the request

  AnswerReader(UniqueFd epoll, UniqueFd wake, Nanos start, Nanos timeout, OnEnd on_end);
  void run();
  void accept_new();
  void watch(Open& open, bool is_new);
  void receive(Open& open);
  void look_at(std::size_t index);
  Result<bool> parse(Open& open);
  void finish(OpenMap::iterator it, LoadOutcome outcome, std::string reason, Nanos at);
  void end_late_ones();
  Nanos now() const { return real_clock().now() - start_; }

  const UniqueFd epoll_, wake_;
  const Nanos start_, timeout_;
  const OnEnd on_end_;
  // The thread's own.
  OpenMap open_;
  std::set<std::pair<Nanos, std::size_t>> deadlines_;
  std::vector<char> buffer_;

  Mutex mutex_;
  std::vector<ExchangePtr> new_ NMC_GUARDED_BY(mutex_);
  std::atomic<bool> ended_{false};
  std::atomic<std::int64_t> cpu_ns_{0};
  std::thread thread_;
};

}  // namespace nmc::lab
