// The runtimes whose workers are threads of this process: monolithic (one worker does both stages) and pd (a prefill
// worker hands each request over to a decode worker).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/handover.h"
#include "engine/handover_log.h"
#include "engine/prefix_cache.h"
#include "engine/runtime.h"
#include "engine/stage_teller.h"
#include "engine/worker.h"

namespace nmc::engine {

class LocalRuntime final : public Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> create(const RuntimeOptions& options, const model::Decoder& decoder,
                                                 kv::Namespace ns, store::Store& store, ThreadPool& pool);
  ~LocalRuntime() override;

  Result<void> submit(GenerateRequest request, std::shared_ptr<RequestListener> listener) override;
  void cancel(const std::string& id) override;
  bool drain(Nanos timeout) override;
  RuntimeStatus status() const override;
  const RuntimeOptions& options() const override { return options_; }

 private:
  LocalRuntime(const RuntimeOptions& options, const model::Decoder& decoder, store::Store& store);

  Worker& add_worker(std::string name, std::string role, ThreadPool& pool, const kv::Namespace& ns, WorkerHooks hooks);
  WorkerHooks hooks_for(std::size_t worker);
  void pass_on(std::unique_ptr<Sequence> sequence);
  void finished(std::size_t worker, Sequence& sequence, FinishReason reason, std::optional<Error> error);
  void tell_admitted(std::size_t worker, const Sequence& sequence) const;
  void tell_prefilled(std::size_t worker, const Sequence& sequence) const;
  void tell_ended(std::size_t worker, const Sequence& sequence, Nanos now) const;
  StagePlace place_of(std::size_t worker) const;
  void poke_others(std::size_t worker);
  void cancel_all();

  const RuntimeOptions options_;
  const model::Decoder& decoder_;
  store::Store& store_;
  const StageTeller stages_;
  HandoverLog handover_log_;
  std::unique_ptr<Handover> handover_;                // kPd only
  std::vector<std::unique_ptr<PrefixCache>> caches_;  // one a worker, unless nothing is reused
  std::vector<std::unique_ptr<Worker>> workers_;      // fixed once running; [0] takes new requests

  mutable Mutex mutex_;
  CondVar idle_;
  std::unordered_map<std::string, std::shared_ptr<CancelToken>> live_ NMC_GUARDED_BY(mutex_);
  std::size_t queued_ NMC_GUARDED_BY(mutex_) = 0;
  bool draining_ NMC_GUARDED_BY(mutex_) = false;
  std::uint64_t arrivals_ NMC_GUARDED_BY(mutex_) = 0;
  RuntimeCounters counters_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::engine
