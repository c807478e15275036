// One engine loop on one thread: admits sequences, builds a mixed batch (decode rows first, then a chunk of prefill),
// runs the forward pass, samples, publishes full blocks, emits tokens.
//
// Memory: a sequence is admitted with blocks for all of its tokens and one more, so a prefill never stalls half-way,
// and a resumed sequence emits at least one token before it can be preempted again. When a decode row finds no block,
// the newest sequence that holds some, running or still in its parcel, gives them back and waits at its place in the
// order of arrival. So the oldest always gets on: what waits behind it can't keep memory from it, and what comes before
// this worker (may_admit) takes none while somebody here lacks it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/handover.h"
#include "engine/prefix_cache.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "model/decoder.h"

namespace nmc::engine {

struct WorkerParts {
  const model::Decoder* decoder = nullptr;
  store::Store* store = nullptr;
  ThreadPool* pool = nullptr;
  PrefixCache* cache = nullptr;  // null with --reuse none
  KvInlet* inbound = nullptr;    // unpacks parcels; null where none arrive
  const RuntimeOptions* options = nullptr;
};

// Called on the worker's thread.
struct WorkerHooks {
  std::function<void(Sequence&)> on_admitted;  // the first time only
  std::function<void(std::unique_ptr<Sequence>)>
      on_prefilled;  // takes over once the first token is out; null: stays here
  std::function<void(Sequence&, FinishReason, std::optional<Error>)>
      on_finished;                        // blocks are back; tells the listener
  std::function<void()> on_memory_freed;  // another worker may be waiting for blocks, or for may_admit()
  std::function<bool()> may_admit;        // false while memory is wanted elsewhere more; null: always true
};

class Worker {
 public:
  Worker(std::string name, std::string role, WorkerParts parts, WorkerHooks hooks);
  ~Worker();  // stop()
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  // Ends what is left as cancelled and joins the thread.
  void stop();

  // Thread-safe.
  const std::string& name() const { return name_; }
  void enqueue(std::unique_ptr<Sequence> sequence);
  void poke();  // something changed that it may be waiting for: a cancellation, memory
  bool lacks_memory() const { return lacks_memory_.load(std::memory_order_relaxed); }  // for its oldest sequence
  WorkerStatus status() const;
  Nanos busy() const { return Nanos(busy_ns_.load(std::memory_order_relaxed)); }
  Nanos uptime() const { return clock_.now() - Nanos(started_ns_.load(std::memory_order_relaxed)); }
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  std::uint64_t preemptions() const { return preemptions_.load(std::memory_order_relaxed); }

 private:
  struct Planned {
    Sequence* sequence;
    std::size_t tokens;  // to compute in this step
    std::size_t rows;    // of them, at the end, whose logits are wanted
    float* logits;       // [rows][vocab], or nullptr
  };
  using Sequences = std::deque<std::unique_ptr<Sequence>>;  // in order of arrival

  void run();
  bool take_inbox();
  void end_abandoned();
  void end_abandoned_in(Sequences& sequences);
  void admit();
  bool make_ready(Sequence& sequence);
  bool attach_blocks(Sequence& sequence);
  void step();
  void grow_running();
  void preempt_newest();
  bool take_back_newest_parcel(std::uint64_t newer_than);
  void set_lacks_memory(bool lacks);
  std::vector<Planned> plan();
  void advance(const Planned& planned);
  void give_logits(std::vector<Planned>& planned);
  void tell_prompt(const Planned& planned);
  SampledToken choose_token(const Sequence& sequence, std::span<const float> logits) const;
  // Samples the token after the last one; true when the sequence is done here (finished, or passed on by its owner).
  bool next_token(Sequence& sequence, std::span<const float> logits);
  void retire(Sequences& from, std::size_t index);
  void release_blocks(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason, std::optional<Error> error = std::nullopt);
  std::size_t blocks_needed(const Sequence& sequence) const;
  std::size_t block_tokens() const { return parts_.options->block_tokens; }

  const std::string name_;
  const std::string role_;
  const WorkerParts parts_;
  const WorkerHooks hooks_;
  const Clock& clock_;

  // The loop's own.
  Sequences waiting_;
  Sequences running_;
  bool admission_blocked_ = false;  // the first in line found no memory; tried again when some may have come back
  model::Workspace workspace_;
  std::vector<float> logits_;  // [planned sequences][vocab]

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<std::unique_ptr<Sequence>> inbox_ NMC_GUARDED_BY(mutex_);
  bool poked_ NMC_GUARDED_BY(mutex_) = false;
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;

  std::atomic<std::size_t> waiting_count_{0}, running_count_{0};
  std::atomic<std::uint64_t> steps_{0}, preemptions_{0};
  std::atomic<std::int64_t> busy_ns_{0};
  std::atomic<std::int64_t> started_ns_{0};
  std::atomic<bool> alive_{false};
  std::atomic<bool> lacks_memory_{false};
  std::thread thread_;
};

}  // namespace nmc::engine
