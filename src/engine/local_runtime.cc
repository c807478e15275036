#include "engine/local_runtime.h"

#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/make_sequence.h"
#include "engine/request_account.h"
#include "engine/request_limits.h"

namespace nmc::engine {
namespace {

constexpr const char* kFrontName = "front";
constexpr const char* kPrefillName = "prefill-0";
constexpr const char* kDecodeName = "decode-0";

// Tells of what goes over, stage by stage, and notes what arrives.
class ObservedHandover final : public Handover {
 public:
  ObservedHandover(std::unique_ptr<Handover> handover, const RuntimeOptions& options, const StageTeller& stages,
                   HandoverLog& log)
      : handover_(std::move(handover)), options_(options), stages_(stages), log_(log) {}

  Result<void> send(Sequence& sequence) override {
    const Nanos start = options_.clock->now();
    const RequestMetrics& metrics = sequence.metrics;
    const StagePlace place{kPrefillName, ::getpid()};
    const Result<void> sent = handover_->send(sequence);
    const Nanos end = options_.clock->now();
    // Whatever is between the stages counts with the last, so that the track is free from here on.
    const Nanos encoding = start + nanos_of_ms(metrics.export_ms);
    const Nanos moving = encoding + nanos_of_ms(metrics.encode_ms);
    if (!sent || encoding == moving) {  // failed, or of one stage only
      stages_.tell(sequence.request.id, place, "export", start, end, true);
    } else {
      stages_.tell(sequence.request.id, place, "export", start, encoding);
      stages_.tell(sequence.request.id, place, "encode", encoding, moving);
      stages_.tell(sequence.request.id, place, "transport", moving, end, true);
    }
    return sent;
  }

  Result<void> receive(Sequence& sequence) override {
    const RequestMetrics before = sequence.metrics;
    NMC_RETURN_IF_ERROR(handover_->receive(sequence));
    const RequestMetrics& metrics = sequence.metrics;
    stages_.tell_until(sequence.request.id, {kDecodeName, ::getpid()}, options_.clock->now(),
                       {{"transport", metrics.transport_ms - before.transport_ms},
                        {"unpack", metrics.unpack_ms},
                        {"import", metrics.import_ms}});
    log_.add({.request_id = sequence.request.id,
              .from = kPrefillName,
              .to = kDecodeName,
              .transfer = transfer_name(options_.transfer),
              .bytes = metrics.snapshot_bytes,
              .ms = handover_ms(metrics)});
    return {};
  }

 private:
  const std::unique_ptr<Handover> handover_;
  const RuntimeOptions& options_;
  const StageTeller& stages_;
  HandoverLog& log_;
};

}  // namespace

const char* mode_name(Mode mode) {
  return mode == Mode::kMonolithic ? "monolithic" : mode == Mode::kPd ? "pd" : "pd-process";
}
const char* recovery_name(Recovery recovery) {
  return recovery == Recovery::kFail ? "fail" : recovery == Recovery::kRetryOnce ? "retry-once" : "retry-other";
}
const char* reuse_name(Reuse reuse) {
  return reuse == Reuse::kNone ? "none" : reuse == Reuse::kLocal ? "local" : "global";
}
const char* transfer_name(Transfer transfer) {
  return transfer == Transfer::kDirect ? "direct" : transfer == Transfer::kShm ? "shm" : "tcp";
}

Result<std::unique_ptr<Runtime>> create_runtime(const RuntimeOptions& options, const model::Decoder& decoder,
                                                kv::Namespace ns, store::Store& store, ThreadPool& pool) {
  return LocalRuntime::create(options, decoder, std::move(ns), store, pool);
}

LocalRuntime::LocalRuntime(const RuntimeOptions& options, const model::Decoder& decoder, store::Store& store)
    : options_(with_context_of(options, decoder.config())),
      decoder_(decoder),
      store_(store),
      stages_(options.on_stage) {}

Result<std::unique_ptr<Runtime>> LocalRuntime::create(const RuntimeOptions& options, const model::Decoder& decoder,
                                                      kv::Namespace ns, store::Store& store, ThreadPool& pool) {
  NMC_REQUIRE(options.mode != Mode::kPdProcess, "mode={}", mode_name(options.mode));
  NMC_REQUIRE(store.options().block_bytes == ns.layout.block_bytes() && ns.layout.block_tokens == options.block_tokens,
              "store blocks of {} bytes, layout {}", store.options().block_bytes, ns.layout.to_string());
  std::unique_ptr<LocalRuntime> runtime(new LocalRuntime(options, decoder, store));
  LocalRuntime* self = runtime.get();
  if (options.mode == Mode::kMonolithic) {
    self->add_worker("worker-0", "both", pool, ns, self->hooks_for(0));
  } else {
    HandoverContext context{.layout = ns.layout, .ns = ns.digest(), .store = &store, .clock = self->options_.clock};
    NMC_ASSIGN_OR_RETURN(std::unique_ptr<Handover> handover, create_handover(options.transfer, context));
    self->handover_ =
        std::make_unique<ObservedHandover>(std::move(handover), self->options_, self->stages_, self->handover_log_);
    WorkerHooks prefill = self->hooks_for(0);
    prefill.on_prefilled = [self](std::unique_ptr<Sequence> sequence) { self->pass_on(std::move(sequence)); };
    prefill.may_admit = [self] { return !self->workers_[1]->lacks_memory(); };
    self->add_worker(kPrefillName, "prefill", pool, ns, std::move(prefill));
    self->add_worker(kDecodeName, "decode", pool, ns, self->hooks_for(1));
  }
  for (const auto& worker : self->workers_) worker->start();
  return std::unique_ptr<Runtime>(std::move(runtime));
}

// The prefill worker goes first: until it has stopped it may pass sequences on.
LocalRuntime::~LocalRuntime() {
  cancel_all();
  for (const auto& worker : workers_) worker->stop();
}

Worker& LocalRuntime::add_worker(std::string name, std::string role, ThreadPool& pool, const kv::Namespace& ns,
                                 WorkerHooks hooks) {
  PrefixCache* cache = nullptr;
  if (auto own = PrefixCache::of_worker(name, store_, ns, decoder_.config().vocab, options_)) {
    caches_.push_back(std::move(own));
    cache = caches_.back().get();
  }
  const WorkerParts parts{.decoder = &decoder_,
                          .store = &store_,
                          .pool = &pool,
                          .cache = cache,
                          .inbound = handover_.get(),
                          .options = &options_};
  workers_.push_back(std::make_unique<Worker>(std::move(name), std::move(role), parts, std::move(hooks)));
  return *workers_.back();
}

WorkerHooks LocalRuntime::hooks_for(std::size_t worker) {
  WorkerHooks hooks;
  hooks.on_admitted = [this, worker](Sequence& sequence) {
    tell_admitted(worker, sequence);
    MutexLock lock(mutex_);
    --queued_;
  };
  hooks.on_finished = [this, worker](Sequence& sequence, FinishReason reason, std::optional<Error> error) {
    finished(worker, sequence, reason, std::move(error));
  };
  hooks.on_memory_freed = [this, worker] { poke_others(worker); };
  return hooks;
}

void LocalRuntime::poke_others(std::size_t worker) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (i != worker) workers_[i]->poke();
  }
}

// ---- Requests -------------------------------------------------------------------------------------------------------

Result<void> LocalRuntime::submit(GenerateRequest request, std::shared_ptr<RequestListener> listener) {
  NMC_RETURN_IF_ERROR(check_request(request, options_, decoder_.config().vocab, store_));
  const PrefixCache* const cache = caches_.empty() ? nullptr : caches_.front().get();
  std::unique_ptr<Sequence> sequence = make_sequence(std::move(request), {}, cache, options_);
  sequence->listener = std::move(listener);
  const std::string& id = sequence->request.id;
  {
    MutexLock lock(mutex_);
    NMC_RETURN_IF_ERROR(count_arrival(counters_, draining_, queued_, options_.max_queue));
    if (!live_.emplace(id, sequence->cancel).second) return invalid_argument("request id {} is in use", id);
    ++queued_;
    sequence->arrival = arrivals_++;
  }
  workers_.front()->enqueue(std::move(sequence));
  return {};
}

void LocalRuntime::cancel(const std::string& id) {
  {
    MutexLock lock(mutex_);
    const auto it = live_.find(id);
    if (it == live_.end()) return;
    it->second->cancelled.store(true, std::memory_order_relaxed);
  }
  for (const auto& worker : workers_) worker->poke();
}

void LocalRuntime::cancel_all() {
  {
    MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& [id, token] : live_) token->cancelled.store(true, std::memory_order_relaxed);
  }
  for (const auto& worker : workers_) worker->poke();
}

bool LocalRuntime::drain(Nanos timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    while (!live_.empty() && idle_.wait_until(mutex_, deadline)) {
    }
    if (live_.empty()) return true;
  }
  cancel_all();
  MutexLock lock(mutex_);
  while (!live_.empty()) idle_.wait(mutex_);
  return false;
}

// On the prefill worker's thread: its first token is out, the decode worker goes on.
void LocalRuntime::pass_on(std::unique_ptr<Sequence> sequence) {
  tell_prefilled(0, *sequence);
  const Result<void> sent = handover_->send(*sequence);
  if (!sent) {
    log_warning("request {}: hand-over failed, the decode worker computes again: {}", sequence->request.id,
                sent.error().message);
    sequence->release_blocks();
  }
  if (options_.reuse == Reuse::kLocal) {  // from here on blocks are the decode worker's to name
    sequence->chain = caches_[1]->chain(sequence->request, sequence->tokens);
  }
  workers_[1]->enqueue(std::move(sequence));
  poke_others(0);
}

// ---- What on_stage hears --------------------------------------------------------------------------------------------

StagePlace LocalRuntime::place_of(std::size_t worker) const { return {workers_[worker]->name(), ::getpid()}; }

void LocalRuntime::tell_admitted(std::size_t worker, const Sequence& sequence) const {
  const RequestMetrics& metrics = sequence.metrics;
  const Nanos looked = sequence.admitted - nanos_of_ms(metrics.lookup_ms) - nanos_of_ms(metrics.restore_ms);
  stages_.tell(sequence.request.id, {kFrontName, ::getpid()}, "queue", sequence.submitted, looked, true);
  stages_.tell_until(sequence.request.id, place_of(worker), sequence.admitted,
                     {{"lookup", metrics.lookup_ms}, {"restore", metrics.restore_ms}});
}

void LocalRuntime::tell_prefilled(std::size_t worker, const Sequence& sequence) const {
  const double ms = sequence.metrics.prefill_ms;
  stages_.tell_until(sequence.request.id, place_of(worker), sequence.admitted + nanos_of_ms(ms), {{"prefill", ms}});
}

void LocalRuntime::tell_ended(std::size_t worker, const Sequence& sequence, Nanos now) const {
  const std::string& id = sequence.request.id;
  if (sequence.admitted == Nanos{0}) {
    return stages_.tell(id, {kFrontName, ::getpid()}, "queue", sequence.submitted, now, true);
  }
  if (sequence.first_token == Nanos{0}) {
    return stages_.tell(id, place_of(worker), "prefill", sequence.admitted, now, true);
  }
  if (worker == 0) tell_prefilled(worker, sequence);  // else pass_on() has
  stages_.tell(id, place_of(worker), "decode", sequence.first_token, now, true);
}

void LocalRuntime::finished(std::size_t worker, Sequence& sequence, FinishReason reason, std::optional<Error> error) {
  RequestMetrics& metrics = sequence.metrics;
  const Nanos now = options_.clock->now();
  measure_ending(metrics, sequence.generated(), sequence.submitted, sequence.first_token, now);
  tell_ended(worker, sequence, now);
  {
    MutexLock lock(mutex_);
    live_.erase(sequence.request.id);
    const bool was_admitted = sequence.admitted != Nanos{0};
    if (!was_admitted) --queued_;
    count_ending(counters_, reason, metrics, was_admitted);
    if (live_.empty()) idle_.notify_all();
  }
  sequence.listener->on_finish({reason, std::move(error), metrics});
}

RuntimeStatus LocalRuntime::status() const {
  RuntimeStatus status{.max_queue = options_.max_queue, .max_running = options_.max_running};
  const store::StoreStats pool = store_.stats();
  {
    MutexLock lock(mutex_);
    status.queued = queued_;
    status.running = live_.size() - queued_;
    status.counters = counters_;
    if (live_.empty()) status.counters.leaked_handles = pool.reservations;
  }
  status.handovers = handover_log_.newest_first();
  for (const auto& worker : workers_) {
    status.workers.push_back(worker->status());
    status.counters.steps += worker->steps();
    status.counters.preemptions += worker->preemptions();
  }
  return status;
}

}  // namespace nmc::engine
