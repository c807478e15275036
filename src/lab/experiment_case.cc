#include "lab/experiment_case.h"

#include <chrono>
#include <thread>

#include "base/failpoint.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "evidence/metrics.h"

namespace nmc::lab {
namespace {

using engine::FinishReason;
using evidence::RequestRow;

constexpr Nanos kQuietWait = std::chrono::seconds(20);  // a worker that stands still is replaced by then
constexpr auto kQuietRetry = std::chrono::milliseconds(2);
constexpr std::size_t kEndlessTokens = 100'000;  // of an answer that is to be cut off, unless the context ends before

constexpr std::size_t kFillersAtOnce = 16;  // written to memory before the disk has to have them

std::string digest_of_tokens(const std::vector<engine::TokenId>& tokens) {
  return sha256(std::as_bytes(std::span(tokens))).hex();
}

// What a request was told, and how often it was told an end.
class Told final : public engine::RequestListener {
 public:
  // At its second token `on_second` is called, where it is set.
  explicit Told(std::function<void()> on_second = nullptr) : on_second_(std::move(on_second)) {}

  void on_token(const engine::SampledToken& token) override {
    if (const auto hit = failpoint("experiment.token")) return;
    std::size_t count = 0;
    {
      MutexLock lock(mutex_);
      tokens_.push_back(token.id);
      count = tokens_.size();
      changed_.notify_all();
    }
    if (count == 2 && on_second_) on_second_();
  }
  void on_finish(const engine::Outcome& outcome) override {
    MutexLock lock(mutex_);
    outcome_ = outcome;
    ++endings_;
    changed_.notify_all();
  }

  void wait_first_token() {
    MutexLock lock(mutex_);
    while (tokens_.empty() && endings_ == 0) changed_.wait(mutex_);
  }
  void wait() {
    MutexLock lock(mutex_);
    while (endings_ == 0) changed_.wait(mutex_);
  }
  bool is_over() const {
    MutexLock lock(mutex_);
    return endings_ > 0;
  }

  // Once it is over, and the runtime has nothing left to tell.
  void describe(RequestRow& row) const {
    MutexLock lock(mutex_);
    row.endings = endings_;
    if (!outcome_) return;
    const engine::RequestMetrics& m = outcome_->metrics;
    const bool finished = outcome_->reason == FinishReason::kStop || outcome_->reason == FinishReason::kLength;
    row.outcome = outcome_of(*outcome_);
    if (row.outcome == "failed") row.error = error_code_name(outcome_->error->code);
    row.tokens_digest = digest_of_tokens(finished ? tokens_ : std::vector<engine::TokenId>());
    row.cache_source = engine::cache_source_name(m.cache_source);
    row.transfer_carrier = m.transfer_carrier;
    if (!finished) return;  // how far it got is chance
    row.metrics = {{"ttft_ms", m.ttft_ms},           {"e2e_ms", m.e2e_ms},       {"decode_ms", m.decode_ms},
                   {"queue_ms", m.queue_ms},         {"lookup_ms", m.lookup_ms}, {"restore_ms", m.restore_ms},
                   {"prefill_ms", m.prefill_ms},     {"export_ms", m.export_ms}, {"encode_ms", m.encode_ms},
                   {"transport_ms", m.transport_ms}, {"unpack_ms", m.unpack_ms}, {"import_ms", m.import_ms}};
    for (auto& [name, value] : row.metrics) value = evidence::rounded(value);
    const std::pair<const char*, std::size_t> counts[] = {
        {"prompt_tokens", m.prompt_tokens},   {"computed_tokens", m.computed_tokens},
        {"saved_tokens", m.saved_tokens},     {"output_tokens", m.output_tokens},
        {"hit_blocks", m.hit_blocks},         {"snapshot_bytes", m.snapshot_bytes},
        {"transfer_bytes", m.transfer_bytes}, {"preemptions", m.preemptions}};
    for (const auto& [name, count] : counts) row.metrics[name] = static_cast<double>(count);
  }

 private:
  static std::string outcome_of(const engine::Outcome& outcome) {
    switch (outcome.reason) {
      case FinishReason::kStop:
      case FinishReason::kLength: return "finished";
      case FinishReason::kCancelled:
        return outcome.error && outcome.error->code == ErrorCode::kDeadlineExceeded ? "deadline" : "cancelled";
      case FinishReason::kFailed: break;
    }
    return outcome.error && outcome.error->code == ErrorCode::kDeadlineExceeded ? "deadline" : "failed";
  }

  const std::function<void()> on_second_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<engine::TokenId> tokens_ NMC_GUARDED_BY(mutex_);
  std::optional<engine::Outcome> outcome_ NMC_GUARDED_BY(mutex_);
  std::uint64_t endings_ NMC_GUARDED_BY(mutex_) = 0;
};

struct Asked {
  RequestRow row;
  std::shared_ptr<Told> told;  // null: it was refused
};

class CaseRun {
 public:
  CaseRun(engine::Runtime& runtime, store::Store& store, const Workload& workload, const CaseOptions& options)
      : runtime_(runtime), store_(store), workload_(workload), options_(options) {}

  Result<evidence::CaseRow> run() {
    NMC_RETURN_IF_ERROR(reach_lifecycle());
    evidence::CaseRow row{.key = options_.key,
                          .repeat = options_.repeat,
                          .status = "done",
                          .reason = "",
                          .workload_digest = workload_.digest,
                          .requests = {},
                          .workers = {},
                          .resources = {},
                          .fault = {}};
    std::vector<Asked> asked;
    if (workload_.spec.max_queue > 0) {
      NMC_ASSIGN_OR_RETURN(asked, ask_behind_busy_workers());
    } else {
      for (const auto& wave : workload_.waves) NMC_RETURN_IF_ERROR(ask_wave(wave, "", asked));
    }
    wait_until_quiet();
    for (Asked& one : asked) {
      if (one.told != nullptr) one.told->describe(one.row);
      row.requests.push_back(std::move(one.row));
    }
    describe_system(row);
    if (options_.fault != nullptr)
      row.fault = evidence::FaultEvidence{.failpoint = "",
                                          .process = "",
                                          .fired = 0,
                                          .expected = std::string(options_.fault->expected),
                                          .observed = false};
    return row;
  }

 private:
  // The measured requests find what the lifecycle says: nothing, what the same requests left in memory, or what they
  // left on disk only.
  Result<void> reach_lifecycle() {
    if (options_.key.lifecycle == "cold") return {};
    std::vector<Asked> before;
    for (const auto& wave : workload_.waves) {
      NMC_RETURN_IF_ERROR(ask_wave(wave, "before-", before));
      NMC_RETURN_IF_ERROR(store_.flush());  // what a slow disk can't keep up with would be dropped
    }
    wait_until_quiet();
    return options_.key.lifecycle == "warm" ? Result<void>() : fill_memory();
  }

  // Until nothing of before is left there.
  Result<void> fill_memory() {
    const std::size_t blocks = store_.blocks_total() + store_.blocks_total() / 4;
    const std::vector<std::byte> zeros(store_.options().block_bytes);
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::string key = fmt::format("experiment/filler/{}", i);
      NMC_RETURN_IF_ERROR(store_.put(store::ObjectClass::kBlock, key, zeros));
      if (i % kFillersAtOnce == 0) NMC_RETURN_IF_ERROR(store_.flush());
    }
    return store_.flush();
  }

  // A full queue is an outcome; a request that the runtime doesn't take for another reason is an error.
  Result<Asked> ask(const WorkloadRequest& from, const std::string& id_prefix, bool measured) {
    engine::GenerateRequest request;
    request.id = id_prefix + from.id;
    request.prompt = from.prompt;
    request.sampling.temperature = 0;
    request.max_tokens = from.output_tokens;
    request.ignore_eos = true;  // so that each answer is as long as was asked
    const FaultSpec* const fault = measured ? options_.fault : nullptr;
    if (fault != nullptr && fault->request_timeout_s > 0)
      request.deadline = runtime_.options().clock->now() +
                         std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(fault->request_timeout_s));
    std::function<void()> on_second;
    if (fault != nullptr && fault->cancels && from.id == "r0") {
      request.max_tokens = endless(request.prompt.size());
      on_second = [this, id = request.id] { runtime_.cancel(id); };
    }
    Asked asked{.row = {.id = from.id,
                        .outcome = "rejected",
                        .error = "",
                        .endings = 1,
                        .tokens_digest = digest_of_tokens({}),
                        .cache_source = "none",
                        .transfer_carrier = "none",
                        .metrics = {}},
                .told = std::make_shared<Told>(std::move(on_second))};
    const Result<void> taken = runtime_.submit(std::move(request), asked.told);
    if (taken) return asked;
    if (taken.error().code != ErrorCode::kResourceExhausted)
      return Failure(Error(taken.error()).with_context("request " + from.id));
    asked.told = nullptr;
    asked.row.error = error_code_name(taken.error().code);
    return asked;
  }

  Result<void> ask_wave(const std::vector<WorkloadRequest>& wave, const std::string& id_prefix,
                        std::vector<Asked>& asked) {
    const std::size_t first = asked.size();
    for (const WorkloadRequest& request : wave) {
      NMC_ASSIGN_OR_RETURN(Asked one, ask(request, id_prefix, id_prefix.empty()));
      asked.push_back(std::move(one));
    }
    for (std::size_t i = first; i < asked.size(); ++i) {
      if (asked[i].told != nullptr) asked[i].told->wait();
    }
    return {};
  }

  // One worker of each kind runs one request at a time (the server's --max-running is 1) and has one that doesn't end
  // until all others were asked: so exactly as many find a place as the queue has.
  Result<std::vector<Asked>> ask_behind_busy_workers() {
    WorkloadRequest busy{.id = "busy", .prompt = other_prompt(options_.seed, 0, 16, options_.vocab)};
    busy.output_tokens = endless(busy.prompt.size());
    NMC_ASSIGN_OR_RETURN(const Asked keeper, ask(busy, "", false));
    if (keeper.told == nullptr) return unavailable("the request that keeps the workers busy was refused");
    keeper.told->wait_first_token();
    if (const Result<void> running = wait_until_decoding(); !running) return Failure(running.error());
    std::vector<Asked> asked;
    for (const auto& wave : workload_.waves) {
      for (const WorkloadRequest& request : wave) {
        NMC_ASSIGN_OR_RETURN(Asked one, ask(request, "", true));
        asked.push_back(std::move(one));
      }
    }
    const bool too_short = keeper.told->is_over();
    runtime_.cancel(busy.id);
    for (const Asked& one : asked) {
      if (one.told != nullptr) one.told->wait();
    }
    if (too_short)
      return unavailable(
          "the request that kept the workers busy was over before all others were asked: this machine was "
          "too slow, or the model's context of {} tokens is too short",
          runtime_.options().max_context);
    return asked;
  }

  std::size_t endless(std::size_t prompt_tokens) const {
    return std::min(kEndlessTokens, runtime_.options().max_context - prompt_tokens);
  }

  // The prefill worker has passed it on, and nothing waits.
  Result<void> wait_until_decoding() {
    const Stopwatch watch;
    while (watch.elapsed() < kQuietWait) {
      const engine::RuntimeStatus status = runtime_.status();
      const auto decodes = [](const engine::WorkerStatus& worker) {
        return worker.role == "prefill" ? worker.running == 0 : worker.running == 1;
      };
      if (status.queued == 0 && std::ranges::all_of(status.workers, decodes)) return {};
      std::this_thread::sleep_for(kQuietRetry);
    }
    return deadline_exceeded("no worker began to decode within 20 s");
  }

  // Until nothing is held for requests that are over; what still is then is a leak, and counted as one.
  void wait_until_quiet() {
    const Stopwatch watch;
    while (watch.elapsed() < kQuietWait) {
      const engine::RuntimeStatus status = runtime_.status();
      const engine::RuntimeCounters& counters = status.counters;
      if (status.queued + status.running + counters.leaked_handles + counters.residual_slots == 0 &&
          store_.stats().blocks_pinned == 0)
        return;
      std::this_thread::sleep_for(kQuietRetry);
    }
  }

  void describe_system(evidence::CaseRow& row) const {
    const engine::RuntimeStatus status = runtime_.status();
    const store::StoreStats stats = store_.stats();
    row.resources = {{"leaked_handles", status.counters.leaked_handles + stats.blocks_pinned},
                     {"residual_slots", status.counters.residual_slots + status.queued + status.running},
                     {"quarantined_entries", stats.quarantined_entries},
                     {"worker_failures", status.counters.worker_failures}};
    for (const engine::WorkerStatus& worker : status.workers) {
      row.workers.push_back({.name = worker.name,
                             .role = worker.role,
                             .restarts = worker.restarts,
                             .worker_utilization = evidence::rounded(std::clamp(worker.utilization, 0.0, 1.0))});
    }
  }

  engine::Runtime& runtime_;
  store::Store& store_;
  const Workload& workload_;
  const CaseOptions& options_;
};

}  // namespace

Result<evidence::CaseRow> run_case(engine::Runtime& runtime, store::Store& store, const Workload& workload,
                                   const CaseOptions& options) {
  return CaseRun(runtime, store, workload, options).run();
}

}  // namespace nmc::lab
