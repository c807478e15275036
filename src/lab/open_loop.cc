#include "lab/open_loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "lab/answer_reader.h"
#include "lab/connection_pool.h"
#include "lab/load_plan.h"
#include "lab/request_queue.h"

namespace nmc::lab {
namespace {

constexpr Nanos kStopLooks = std::chrono::milliseconds(20);
constexpr Nanos kSpin = std::chrono::microseconds(80);       // before a request is due: a sleep ends late by that order
constexpr Nanos kLead = std::chrono::milliseconds(20);       // from when all is ready to the first arrival
constexpr Nanos kBurst = std::chrono::milliseconds(250);     // diallers and builders may be behind by that
constexpr std::size_t kReadyMax = 64;                        // that the sender has in hand,
constexpr Nanos kReadyTime = std::chrono::milliseconds(50);  // and how long before they are due
constexpr std::size_t kAheadMin = 8, kConnectionsAheadMax = 1024, kRequestsAheadMax = 8192;

// One descriptor a request under way: as many as the system lets us have.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The calling thread goes before other programs where that is allowed. It sleeps nearly always, so it takes nothing
// away from the server on the same host, and isn't kept waiting by it.
bool go_first() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  const sched_param parameters{.sched_priority = 1};
  return ::pthread_setschedparam(::pthread_self(), SCHED_RR, &parameters) == 0;
}

class Loop {
 public:
  Loop(const LoadTarget& target, const LoopOptions& options) : target_(target), options_(options) {}

  Result<LoopRun> run() {
    raise_descriptor_limit();
    const std::size_t ahead = std::max({kAheadMin, densest(options_.arrivals, kBurst) + kAheadMin,
                                        std::min(options_.concurrency, kConnectionsAheadMax)});
    pool_.emplace(
        target_.endpoint, std::min(ahead, kConnectionsAheadMax),
        [this](ExchangePtr exchange, Result<net::TcpStream> stream) { serve(std::move(exchange), std::move(stream)); });
    queue_.emplace(is_open() ? options_.arrivals.size() : options_.requests_max, std::min(2 * ahead, kRequestsAheadMax),
                   [this](std::size_t index) {
                     return target_.endpoint.format_request("POST", target_.path, target_.headers, target_.body(index));
                   });
    NMC_RETURN_IF_ERROR(pool_->wait_filled(options_.should_stop));
    queue_->wait_filled();
    start_ = real_clock().now() + kLead;
    NMC_ASSIGN_OR_RETURN(reader_, AnswerReader::create(start_, options_.timeout,
                                                       [this](ExchangePtr exchange) { end(std::move(exchange)); }));
    std::thread sender([this] { send_all(); });
    wait_for_all();
    sender.join();
    const double seconds = to_ms(now()) / 1e3;
    const Nanos reader_cpu = reader_->cpu_time();
    pool_->stop();  // whoever waits for a connection is handed back, before those who have one
    reader_.reset();
    MutexLock lock(mutex_);
    return LoopRun{.records = take_records_locked(),
                   .interrupted = stop_.load(),
                   .realtime_sender = realtime_,
                   .reader_busy = seconds > 0 ? to_ms(reader_cpu) / 1e3 / seconds : 0,
                   .seconds = seconds};
  }

 private:
  bool is_open() const { return options_.concurrency == 0; }
  Nanos now() const { return real_clock().now() - start_; }

  // Close to `due`: sleeps most of the way. False: the run was stopped.
  bool sleep_until(Nanos due) const {
    while (!stop_.load(std::memory_order_relaxed)) {
      const Nanos left = due - now();
      if (left <= Nanos(0)) return true;
      if (left <= kSpin) continue;
      const timespec span{0, static_cast<long>(std::min(left - kSpin, kStopLooks).count())};
      ::clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr);
    }
    return false;
  }

  void send_all() {
    const bool realtime = go_first();
    if (is_open())
      send_as_planned();
    else
      send_in_turn();
    hand_over();
    MutexLock lock(mutex_);
    realtime_ = realtime;
    sent_all_ = true;
    changed_.notify_all();
  }

  void send_as_planned() {
    const std::vector<Nanos>& arrivals = options_.arrivals;
    // What is due next has its bytes and its connection before: between the clock and the kernel no lock is taken that
    // another thread could hold while it has no core.
    std::deque<ExchangePtr> ready;
    for (std::size_t sent = 0; sent < arrivals.size(); ++sent) {
      // Not long before, or the server might close the connection meanwhile.
      if (ready.empty() && !sleep_until(arrivals[sent] - kReadyTime)) break;
      for (std::size_t next = sent + ready.size(); next < arrivals.size() && ready.size() < kReadyMax; ++next) {
        if (!ready.empty() && arrivals[next] > now() + kReadyTime) break;
        ready.push_back(prepare(next, arrivals[next]));
      }
      if (!sleep_until(arrivals[sent])) break;
      send(std::move(ready.front()));
      ready.pop_front();
      const bool more_at_once = sent + 1 < arrivals.size() && arrivals[sent + 1] - now() < kSpin;
      if (!more_at_once || written_.size() >= kReadyMax) hand_over();
    }
  }

  void send_in_turn() {
    if (!sleep_until(Nanos(0))) return;
    for (std::size_t sent = 0; sent < options_.requests_max; ++sent) {
      const std::optional<Nanos> due = wait_for_turn();
      if (!due) return;
      send(prepare(sent, *due));
      hand_over();
    }
  }

  // Closed loop: when a place became free; nothing at the end of the run.
  std::optional<Nanos> wait_for_turn() {
    MutexLock lock(mutex_);
    while (!stop_.load()) {
      if (now() >= options_.duration) return std::nullopt;
      if (begun_.load() < options_.concurrency) return Nanos(0);
      if (!freed_.empty()) {
        const Nanos due = freed_.front();
        freed_.pop_front();
        if (due >= options_.duration) return std::nullopt;
        return due;
      }
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kStopLooks);
    }
    return std::nullopt;
  }

  ExchangePtr prepare(std::size_t index, Nanos due) {
    auto exchange = std::make_unique<LoadExchange>(index, queue_->take(), target_.streamed);
    exchange->record.planned = due;
    connect(*exchange);
    return exchange;
  }

  // If a connection is open.
  void connect(LoadExchange& exchange) {
    if (auto stream = pool_->take()) exchange.stream.emplace(std::move(*stream));
  }

  void send(ExchangePtr exchange) {
    begun_.fetch_add(1);
    if (!exchange->stream) connect(*exchange);
    if (!exchange->stream) {
      exchange->record.no_connection = true;
      return pool_->serve_later(std::move(exchange));
    }
    // A broken connection shows when it is read.
    static_cast<void>(exchange->write(start_));
    written_.push_back(std::move(exchange));
  }

  // What was sent, to its reader.
  void hand_over() {
    for (ExchangePtr& exchange : std::exchange(written_, {})) reader_->add(std::move(exchange));
  }

  void serve(ExchangePtr exchange, Result<net::TcpStream> stream) {
    if (stream && now() < exchange->record.planned + options_.timeout) {
      exchange->stream.emplace(std::move(*stream));
      static_cast<void>(exchange->write(start_));
      return reader_->add(std::move(exchange));
    }
    exchange->record.failed_here = !stream && stream.error().code == ErrorCode::kResourceExhausted;
    if (stream)
      exchange->end(LoadOutcome::kTimeout, "no connection in time", now());
    else if (stream.error().code == ErrorCode::kCancelled)
      exchange->end(LoadOutcome::kUnfinished, stream.error().message, now());
    else
      exchange->end(LoadOutcome::kError, stream.error().message, now());
    end(std::move(exchange));
  }

  void end(ExchangePtr exchange) {
    if (exchange->stream) pool_->give_back(std::move(*exchange->stream));
    MutexLock lock(mutex_);
    if (!is_open()) freed_.push_back(exchange->record.ended);
    records_.push_back(std::move(exchange->record));
    changed_.notify_all();
  }

  void wait_for_all() {
    MutexLock lock(mutex_);
    while (!sent_all_ || (records_.size() < begun_.load() && !stop_.load())) {
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kStopLooks);
      if (options_.should_stop && options_.should_stop()) stop_.store(true);
      if (options_.on_progress) options_.on_progress(begun_.load(), records_.size());
    }
  }

  std::vector<LoadRecord> take_records_locked() NMC_REQUIRES(mutex_) {
    std::sort(records_.begin(), records_.end(),
              [](const LoadRecord& a, const LoadRecord& b) { return a.index < b.index; });
    return std::move(records_);
  }

  const LoadTarget& target_;
  const LoopOptions& options_;
  Nanos start_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> begun_{0};
  std::optional<ConnectionPool> pool_;
  std::optional<RequestQueue> queue_;
  std::unique_ptr<AnswerReader> reader_;
  std::vector<ExchangePtr> written_;  // the sender's: not handed over

  Mutex mutex_;
  CondVar changed_;
  std::vector<LoadRecord> records_ NMC_GUARDED_BY(mutex_);  // ended
  std::deque<Nanos> freed_ NMC_GUARDED_BY(mutex_);          // closed loop: when places became free
  bool sent_all_ NMC_GUARDED_BY(mutex_) = false;
  bool realtime_ NMC_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<LoopRun> run_loop(const LoadTarget& target, const LoopOptions& options) {
  NMC_REQUIRE(options.arrivals.empty() != (options.concurrency == 0), "an open loop or a closed one");
  return Loop(target, options).run();
}

}  // namespace nmc::lab
