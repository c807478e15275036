// A runtime turns requests into tokens on one or more workers. The HTTP server, the demo and the benchmarks see only
// this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/request.h"
#include "engine/stage_span.h"
#include "model/decoder.h"
#include "store/store.h"

namespace nmc::engine {

enum class Mode { kMonolithic, kPd, kPdProcess };
enum class Reuse { kNone, kLocal, kGlobal };
enum class Transfer { kDirect, kShm, kTcp };
// What becomes of a request whose worker died.
enum class Recovery {
  kFail,        // it fails
  kRetryOnce,   // it goes on at a worker of that kind, be it the same one restarted; a second time it fails
  kRetryOther,  // the same, but never at the one that died, and it fails if there is no other
};
const char* mode_name(Mode mode);              // "monolithic", "pd", "pd-process"
const char* reuse_name(Reuse reuse);           // "none", "local", "global"
const char* transfer_name(Transfer transfer);  // "direct", "shm", "tcp"
const char* recovery_name(Recovery recovery);  // "fail", "retry-once", "retry-other"

struct RuntimeOptions {
  Mode mode = Mode::kMonolithic;
  Reuse reuse = Reuse::kGlobal;
  Transfer transfer = Transfer::kDirect;  // between the workers of kPd
  std::uint32_t block_tokens = 16;
  std::size_t max_queue = 256;         // requests accepted but not running; one more is refused
  std::size_t max_running = 64;        // sequences in one batch
  std::size_t max_batch_tokens = 256;  // rows of one forward pass: decode rows first, then a chunk of prefill
  std::size_t max_context = 0;         // prompt and output tokens of a request; 0: the model's
  std::vector<TokenId> eos_ids;        // end a generation unless the request ignores them
  const Clock* clock = &real_clock();  // outlives the runtime

  // Sees the logits each token is sampled from, on the worker's thread: for parity tests and evaluation. `position` is
  // the number of tokens before the one to be sampled.
  std::function<void(const std::string& request_id, std::size_t position, std::span<const float> logits)> on_logits;

  // Hears of each stage of each request when it is over, on a thread of the runtime's: must return quickly. A request
  // that never got to a worker has spent its time in "queue".
  std::function<void(const StageSpan&)> on_stage;
};

struct WorkerStatus {
  std::string name;  // "worker-0", "prefill-0", "decode-0"
  std::string role;  // "prefill", "decode", "both"
  std::int64_t pid = 0;
  std::string state;  // "ready", "starting", "draining", "lost", "stopped"
  std::size_t restarts = 0, queued = 0, running = 0;
  double utilization = 0;  // busy time over wall time since start
};

// Totals since start.
struct RuntimeCounters {
  std::uint64_t requests_received = 0, requests_finished = 0, requests_cancelled = 0, requests_failed = 0;
  std::uint64_t requests_rejected = 0;  // queue full
  std::uint64_t prompt_tokens = 0, computed_tokens = 0, saved_tokens = 0, output_tokens = 0;
  std::uint64_t hit_blocks = 0, preemptions = 0, steps = 0;
  std::uint64_t snapshot_bytes = 0, transfer_bytes = 0;
  std::uint64_t leaked_handles = 0, residual_slots = 0, worker_failures = 0;
};

// A request's KV that arrived at its next worker.
struct HandoverRecord {
  std::string request_id;
  std::string from, to;     // names of workers
  std::string transfer;     // transfer_name()
  std::uint64_t bytes = 0;  // RequestMetrics::snapshot_bytes
  double ms = 0;            // the time its five stages took together, not the wait between them
};
constexpr std::size_t kHandoverRecordsMax = 32;

struct RuntimeStatus {
  std::size_t queued = 0, running = 0, max_queue = 0, max_running = 0;
  std::vector<WorkerStatus> workers;
  RuntimeCounters counters;
  std::vector<HandoverRecord> handovers;  // the last ones, newest first; at most kHandoverRecordsMax
};

// Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;  // cancels what is left and waits for the workers

  // Queues the request. `listener` is kept until its on_finish returned. kResourceExhausted: the queue is full;
  // kInvalidArgument: the prompt is empty, holds an unknown id, or prompt and max_tokens don't fit context or block
  // pool; kUnavailable: draining.
  virtual Result<void> submit(GenerateRequest request, std::shared_ptr<RequestListener> listener) = 0;

  // Ends the request within one step, with FinishReason::kCancelled; unknown or finished ids are ignored.
  virtual void cancel(const std::string& id) = 0;

  // Refuses new requests and waits until none is left, at most `timeout`; then cancels the rest. True: none had to be.
  virtual bool drain(Nanos timeout) = 0;

  virtual RuntimeStatus status() const = 0;
  virtual const RuntimeOptions& options() const = 0;
};

// The parts are borrowed and outlive the runtime. `store` was made with block_bytes of ns.layout, whose block_tokens is
// options.block_tokens; `ns` has neither adapter nor salt. Fails when a hand-over can't be set up.
Result<std::unique_ptr<Runtime>> create_runtime(const RuntimeOptions& options, const model::Decoder& decoder,
                                                kv::Namespace ns, store::Store& store, ThreadPool& pool);

}  // namespace nmc::engine
