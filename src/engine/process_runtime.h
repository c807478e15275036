// The runtime whose workers are processes: it queues requests, chooses a prefill and a decode worker for each, passes
// the first's KV on to the second, and hands what a dead worker had to another. Every token goes to its listener once,
// whoever computed it: noise is keyed by position, so whoever goes on draws what would have been drawn.
//
// A request waits here, in order of arrival, until a prefill worker and some decode worker have room; so workers are
// chosen by what is known at the last moment, and what waits is lost with no worker. Deadlines are kept here too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/front_log.h"
#include "engine/placement.h"
#include "engine/prefix_directory.h"
#include "engine/runtime.h"
#include "engine/worker_link.h"
#include "kv/prefix.h"

namespace nmc::engine {

struct ProcessRuntimeOptions {
  RuntimeOptions runtime;              // mode kPdProcess; max_running is each worker's
  std::vector<WorkerAddress> workers;  // at least one of each role
  Recovery recovery = Recovery::kRetryOnce;
  std::unique_ptr<PlacementPolicy> prefill_policy, decode_policy;
  std::string token;                                // of workers over TCP
  Nanos worker_deadline = std::chrono::seconds(5);  // a worker that says nothing for so long is given up
  Nanos handover_lease = std::chrono::seconds(10);  // the workers'
};

// Thread-safe.
class ProcessRuntime final : public Runtime {
 public:
  // Connects to the workers, which need not be there yet. `config` and `ns` are the model's, as for create_runtime();
  // `store` is the workers' own, where they are of this host: it is asked what it holds, and borrowed.
  static std::unique_ptr<ProcessRuntime> create(ProcessRuntimeOptions options, const model::ModelConfig& config,
                                                kv::Namespace ns, store::Store& store);
  ~ProcessRuntime() override;

  // Until each worker was up once. kUnavailable: not within `timeout`, with those that lack. What a worker refused this
  // front for, as soon as one does.
  Result<void> wait_ready(Nanos timeout);

  Result<void> submit(GenerateRequest request, std::shared_ptr<RequestListener> listener) override;
  void cancel(const std::string& id) override;
  bool drain(Nanos timeout) override;
  RuntimeStatus status() const override;
  const RuntimeOptions& options() const override { return options_; }

 private:
  struct Live;
  struct WorkerState;
  // What is to be told once the lock is released.
  struct Ended {
    std::shared_ptr<Live> live;
    Outcome outcome;
  };
  using LivePtr = std::shared_ptr<Live>;
  using Queue = std::map<std::uint64_t, LivePtr>;  // by arrival

  ProcessRuntime(ProcessRuntimeOptions options, const model::ModelConfig& config, kv::Namespace ns,
                 store::Store& store);

  // From the workers.
  void on_up(std::size_t worker, const WorkerHello& hello);
  void on_down(std::size_t worker, const Error& why);
  void on_event(std::size_t worker, const WorkerEvent& event);
  static std::span<const PromptToken> untold(const Live& live, std::span<const PromptToken> tokens);
  void on_admitted(std::size_t worker, const LivePtr& live) NMC_REQUIRES(mutex_);
  void on_prefilled(const LivePtr& live, const event::Prefilled& event) NMC_REQUIRES(mutex_);
  std::optional<Ended> on_finished(const LivePtr& live, const event::Finished& event) NMC_REQUIRES(mutex_);
  void on_imported(std::uint64_t handover) NMC_REQUIRES(mutex_);

  // Placement.
  void dispatch_locked() NMC_REQUIRES(mutex_);
  // By value: it leaves the queue that its caller has it from. False, with nothing done: no worker has room.
  bool start_prefill(LivePtr live) NMC_REQUIRES(mutex_);
  bool start_decode(LivePtr live) NMC_REQUIRES(mutex_);
  std::optional<std::size_t> choose(PlacementPolicy& policy, const char* role, const Live& live) NMC_REQUIRES(mutex_);
  std::vector<WorkerLoad> loads_of(const std::vector<std::size_t>& workers, const Live& live) NMC_REQUIRES(mutex_);
  std::size_t matched_tokens(const Live& live, std::size_t worker) NMC_REQUIRES(mutex_);
  bool decode_has_room() const NMC_REQUIRES(mutex_);
  void assign(std::size_t worker, const LivePtr& live, bool whole) NMC_REQUIRES(mutex_);

  // Endings.
  void leave_worker(Live& live) NMC_REQUIRES(mutex_);
  void end_handover(Live& live) NMC_REQUIRES(mutex_);
  Ended end_locked(const LivePtr& live, FinishReason reason, std::optional<Error> error) NMC_REQUIRES(mutex_);
  std::optional<FinishReason> ended_by_tokens(const Live& live) const;
  std::optional<Ended> recover(const LivePtr& live, std::size_t worker, const Error& why) NMC_REQUIRES(mutex_);
  static void tell(const Ended& ended);
  void cancel_locked(Live& live) NMC_REQUIRES(mutex_);
  void cancel_all();

  void keep_house();
  std::vector<Ended> end_overdue(Nanos now) NMC_REQUIRES(mutex_);
  void renew_handovers(Nanos now) NMC_REQUIRES(mutex_);
  Nanos look_interval() const;
  static Nanos due_at(const Live& live);
  Nanos next_look(Nanos now) const NMC_REQUIRES(mutex_);

  const RuntimeOptions options_;
  FrontLog log_;
  const Recovery recovery_;
  const Nanos handover_lease_;
  const std::size_t vocab_;
  const kv::Namespace ns_;
  store::Store& store_;

  mutable Mutex mutex_;
  CondVar changed_;   // a worker came up
  CondVar idle_;      // the last request ended
  CondVar schedule_;  // for the housekeeper: a deadline that it doesn't know, or the end
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  bool draining_ NMC_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<WorkerState>> workers_;  // fixed; what they hold is guarded by mutex_
  const std::unique_ptr<PlacementPolicy> prefill_policy_ NMC_GUARDED_BY(mutex_);
  const std::unique_ptr<PlacementPolicy> decode_policy_ NMC_GUARDED_BY(mutex_);
  PrefixDirectory directory_ NMC_GUARDED_BY(mutex_);
  std::size_t blocks_total_ NMC_GUARDED_BY(mutex_);  // of the store, as of the housekeeper's last look
  std::unordered_map<std::string, LivePtr> live_ NMC_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, LivePtr> by_ticket_ NMC_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, LivePtr> by_handover_ NMC_GUARDED_BY(mutex_);
  Queue to_prefill_ NMC_GUARDED_BY(mutex_), to_decode_ NMC_GUARDED_BY(mutex_);
  std::size_t queued_ NMC_GUARDED_BY(mutex_) = 0;  // of live_: never admitted by a worker
  std::uint64_t arrivals_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint64_t numbers_ NMC_GUARDED_BY(mutex_) = 0;  // tickets and hand-overs
  Nanos renewed_ NMC_GUARDED_BY(mutex_){0};
  RuntimeCounters counters_ NMC_GUARDED_BY(mutex_);
  std::thread housekeeper_;
};

}  // namespace nmc::engine
