#include "engine/process_runtime.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/prefix_cache.h"
#include "engine/process_runtime_state.h"
#include "engine/request_account.h"
#include "engine/request_limits.h"

namespace nmc::engine {
namespace {

constexpr std::size_t kDirectoryEntries = 1 << 17;
constexpr int kHeartbeatsInDeadline = 5;

}  // namespace

// ---- start and stop ----

std::unique_ptr<ProcessRuntime> ProcessRuntime::create(ProcessRuntimeOptions options, const model::ModelConfig& config,
                                                       kv::Namespace ns, store::Store& store) {
  return std::unique_ptr<ProcessRuntime>(new ProcessRuntime(std::move(options), config, std::move(ns), store));
}

ProcessRuntime::ProcessRuntime(ProcessRuntimeOptions options, const model::ModelConfig& config, kv::Namespace ns,
                               store::Store& store)
    : options_(with_context_of(options.runtime, config)),
      log_(options_),
      recovery_(options.recovery),
      handover_lease_(options.handover_lease),
      vocab_(config.vocab),
      ns_(std::move(ns)),
      store_(store),
      prefill_policy_(std::move(options.prefill_policy)),
      decode_policy_(std::move(options.decode_policy)),
      directory_(kDirectoryEntries),
      blocks_total_(store.blocks_total()) {
  for (WorkerAddress& address : options.workers) {
    const std::size_t index = workers_.size();
    WorkerLinkOptions link{
        .worker = std::move(address),
        .hello = {.ns = ns_.digest(),
                  .layout = ns_.layout.to_string(),
                  .transfer = transfer_name(options_.transfer),
                  .heartbeat = std::min(options.worker_deadline, handover_lease_) / kHeartbeatsInDeadline},
        .token = options.token,
        .deadline = options.worker_deadline};
    WorkerLinkHooks hooks;
    hooks.on_up = [this, index](const WorkerHello& hello) { on_up(index, hello); };
    hooks.on_refused = [this, index](const Error& why) {
      MutexLock lock(mutex_);
      if (!workers_[index]->refused) log_warning("worker {}: {}", workers_[index]->link->worker().name, why.message);
      workers_[index]->refused = why;
      changed_.notify_all();
    };
    hooks.on_down = [this, index](const Error& why) { on_down(index, why); };
    hooks.on_event = [this, index](const WorkerEvent& event) { on_event(index, event); };
    hooks.on_figures = [this, index](const WorkerFigures& figures) {
      MutexLock lock(mutex_);
      workers_[index]->heard = options_.clock->now();
      const bool had_lacked = std::exchange(workers_[index]->figures, figures).lacks_memory;
      if (had_lacked && !figures.lacks_memory) dispatch_locked();
    };
    workers_.push_back(std::make_unique<WorkerState>());
    workers_.back()->link = std::make_unique<WorkerLink>(std::move(link), std::move(hooks));
  }
  for (const auto& worker : workers_) worker->link->start();
  housekeeper_ = std::thread([this] { keep_house(); });
}

ProcessRuntime::~ProcessRuntime() {
  cancel_all();
  {
    MutexLock lock(mutex_);
    while (!live_.empty()) idle_.wait(mutex_);  // the housekeeper ends those whose workers don't
    stopping_ = true;
    schedule_.notify_all();
  }
  housekeeper_.join();
  for (const auto& worker : workers_) worker->link->stop();
}

Result<void> ProcessRuntime::wait_ready(Nanos timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  for (;;) {
    std::string missing;
    for (const auto& worker : workers_) {
      if (worker->was_up) continue;
      const std::string& name = worker->link->worker().name;
      if (worker->refused) return Failure(Error(*worker->refused).with_context("worker " + name));
      missing += (missing.empty() ? "" : ", ") + name;
    }
    if (missing.empty()) return {};
    if (!changed_.wait_until(mutex_, deadline))
      return unavailable("workers didn't come up within {:g} s: {}", to_ms(timeout) / 1e3, missing);
  }
}

// ---- requests ----

Result<void> ProcessRuntime::submit(GenerateRequest request, std::shared_ptr<RequestListener> listener) {
  NMC_RETURN_IF_ERROR(check_request(request, options_, vocab_, store_));
  auto live = std::make_shared<Live>();
  live->listener = std::move(listener);
  live->submitted = options_.clock->now();
  live->metrics.prompt_tokens = live->metrics.computed_tokens = request.prompt.size();
  if (options_.reuse != Reuse::kNone) {
    const kv::PrefixChain chain = prefix_chain(ns_, request, request.prompt);
    live->keys.assign(chain.keys().begin(), chain.keys().end());
  }
  live->request = std::move(request);
  MutexLock lock(mutex_);
  NMC_RETURN_IF_ERROR(count_arrival(counters_, draining_, queued_, options_.max_queue));
  if (!live_.emplace(live->request.id, live).second)
    return invalid_argument("request id {} is in use", live->request.id);
  ++queued_;
  live->arrival = arrivals_++;
  to_prefill_.emplace(live->arrival, live);
  dispatch_locked();
  // The housekeeper sees those that are due later by itself.
  if (due_at(*live) < live->submitted + look_interval()) schedule_.notify_all();
  return {};
}

void ProcessRuntime::cancel(const std::string& id) {
  MutexLock lock(mutex_);
  const auto it = live_.find(id);
  if (it != live_.end()) cancel_locked(*it->second);
}

// Its worker says when it has ended; the housekeeper ends those that no worker has.
void ProcessRuntime::cancel_locked(Live& live) {
  if (live.cancelled_at != Nanos{0}) return;
  live.cancelled_at = options_.clock->now();
  if (live.worker != kNoWorker) workers_[live.worker]->link->send(WorkerOp::kCancel, body_of(live.ticket));
  schedule_.notify_all();
}

void ProcessRuntime::cancel_all() {
  MutexLock lock(mutex_);
  draining_ = true;
  for (const auto& [id, live] : live_) cancel_locked(*live);
}

bool ProcessRuntime::drain(Nanos timeout) {
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

// ---- placement ----

bool ProcessRuntime::decode_has_room() const {
  std::size_t room = 0;
  for (const auto& worker : workers_) {
    if (!worker->up || !worker->is("decode")) continue;
    if (worker->figures.lacks_memory) return false;  // what comes before it would take what it waits for
    room += options_.max_running;
  }
  const std::size_t started = live_.size() - to_prefill_.size();
  return started < room;
}

void ProcessRuntime::dispatch_locked() {
  while (!to_decode_.empty() && start_decode(to_decode_.begin()->second)) {
  }
  while (!to_prefill_.empty() && decode_has_room() && start_prefill(to_prefill_.begin()->second)) {
  }
}

std::size_t ProcessRuntime::matched_tokens(const Live& live, std::size_t worker) {
  return directory_.matched_blocks(live.keys, worker) * options_.block_tokens;
}

std::vector<WorkerLoad> ProcessRuntime::loads_of(const std::vector<std::size_t>& workers, const Live& live) {
  std::size_t held = 0;
  for (const auto& worker : workers_) held += worker->figures.blocks_held;
  std::vector<WorkerLoad> loads;
  for (const std::size_t index : workers) {
    const WorkerState& worker = *workers_[index];
    WorkerLoad load{.name = worker.link->worker().name, .matched_tokens = matched_tokens(live, index)};
    load.blocks_available = blocks_total_ - std::min(blocks_total_, held) + load.matched_tokens / options_.block_tokens;
    for (const auto& [ticket, work] : worker.work) {
      const bool started = worker.is("decode") || work->admitted != Nanos{0};
      const std::size_t tokens =
          worker.is("decode") ? work->request.prompt.size() + work->generated.size() : work->request.prompt.size();
      ++(started ? load.running_requests : load.queued_requests);
      (started ? load.running_tokens : load.queued_tokens) += tokens;
    }
    loads.push_back(std::move(load));
  }
  return loads;
}

// Of the workers of that role that are up and have room. The one that died with the request only if there is no other,
// and recovery allows it.
std::optional<std::size_t> ProcessRuntime::choose(PlacementPolicy& policy, const char* role, const Live& live) {
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const WorkerState& worker = *workers_[i];
    if (worker.up && worker.is(role) && worker.work.size() < options_.max_running) candidates.push_back(i);
  }
  const bool others = std::ranges::any_of(candidates, [&](std::size_t i) { return i != live.excluded; });
  if (others || recovery_ == Recovery::kRetryOther) std::erase(candidates, live.excluded);
  if (candidates.empty()) return std::nullopt;
  const std::size_t tokens = live.request.prompt.size() + live.request.max_tokens - 1;
  const PlacementRequest request{.prompt_tokens = live.request.prompt.size(),
                                 .blocks_needed = (tokens + options_.block_tokens - 1) / options_.block_tokens};
  return candidates[policy.choose(request, loads_of(candidates, live))];
}

bool ProcessRuntime::start_prefill(LivePtr live) {
  const auto chosen = choose(*prefill_policy_, "prefill", *live);
  if (!chosen) return false;
  to_prefill_.erase(live->arrival);
  live->stage = Live::Stage::kPrefill;
  live->handover = ++numbers_;
  live->producer = *chosen;
  live->handed_over = false;
  live->names.clear();
  by_handover_[live->handover] = live;
  if (!live->keys.empty()) directory_.note(live->keys, *chosen);
  assign(*chosen, live, false);
  return true;
}

bool ProcessRuntime::start_decode(LivePtr live) {
  std::optional<std::size_t> chosen;
  const bool importing = live->handover != 0 && live->consumer != kNoWorker && workers_[live->consumer]->up;
  if (importing)
    chosen = live->consumer;
  else
    chosen = choose(*decode_policy_, "decode", *live);
  if (!chosen) return false;
  to_decode_.erase(live->arrival);
  live->stage = Live::Stage::kDecode;
  live->consumer = *chosen;
  if (options_.transfer == Transfer::kDirect && live->handover != 0 &&
      !workers_[*chosen]->shares(*workers_[live->producer])) {
    log_warning("request {}: {} and {} don't share a store, so KV can't be handed over by name: it is computed again",
                live->request.id, workers_[live->producer]->link->worker().name,
                workers_[*chosen]->link->worker().name);
    end_handover(*live);
  }
  assign(*chosen, live, true);
  return true;
}

void ProcessRuntime::assign(std::size_t index, const LivePtr& live, bool whole) {
  WorkerState& worker = *workers_[index];
  live->worker = index;
  live->ticket = ++numbers_;
  by_ticket_[live->ticket] = live;
  worker.work[live->ticket] = live;
  const auto send_list = [&](TokenList which, std::span<const TokenId> tokens) {
    for (std::size_t at = 0; at < tokens.size(); at += kTokensAPiece) {
      net::BodyWriter body;
      body.put_u64(live->ticket).put_u8(static_cast<std::uint8_t>(which));
      put_tokens(body, tokens.subspan(at, std::min(kTokensAPiece, tokens.size() - at)));
      worker.link->send(WorkerOp::kTokens, std::move(body).take());
    }
  };
  send_list(TokenList::kPrompt, live->request.prompt);
  send_list(TokenList::kGenerated, live->generated);
  send_list(TokenList::kForced, live->request.forced);
  Assignment assignment{.ticket = live->ticket,
                        .arrival = live->arrival,
                        .adapter = live->request.adapter ? live->request.adapter->digest() : "",
                        .whole = whole,
                        .handover = live->handover,
                        .kv_tokens = live->kv_tokens};
  if (whole && live->handover != 0) {
    if (options_.transfer != Transfer::kDirect) assignment.source = workers_[live->producer]->hello.kv_address;
    for (std::size_t at = 0; at < live->names.size(); at += kNamesAPiece) {
      net::BodyWriter body;
      body.put_u64(live->ticket);
      put_names(body, std::span(live->names).subspan(at, std::min(kNamesAPiece, live->names.size() - at)));
      worker.link->send(WorkerOp::kNames, std::move(body).take());
    }
  }
  assignment.request = live->request;
  assignment.request.prompt.clear();
  assignment.request.forced.clear();
  net::BodyWriter body;
  put_assignment(body, assignment);
  worker.link->send(WorkerOp::kAssign, std::move(body).take(), live->ticket);
  if (live->cancelled_at != Nanos{0}) worker.link->send(WorkerOp::kCancel, body_of(live->ticket));
}

// ---- what workers say ----

void ProcessRuntime::on_up(std::size_t index, const WorkerHello& hello) {
  MutexLock lock(mutex_);
  WorkerState& worker = *workers_[index];
  worker.hello = hello;
  worker.figures = {};
  worker.up = worker.was_up = true;
  worker.refused.reset();
  ++worker.ups;
  log_info("worker {} is up, process {}", worker.link->worker().name, hello.pid);
  dispatch_locked();
  changed_.notify_all();
}

void ProcessRuntime::on_down(std::size_t index, const Error& why) {
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    WorkerState& worker = *workers_[index];
    log_warning("worker {} (process {}) is lost with {} requests: {}", worker.link->worker().name, worker.hello.pid,
                worker.work.size(), why.message);
    worker.up = false;
    worker.figures = {};
    ++counters_.worker_failures;
    if (!worker.shares(*workers_.front())) directory_.forget(index);
    // KV that was on its way from it or to it: whoever decodes finds out, or takes it up from the producer again.
    for (auto it = by_handover_.begin(); it != by_handover_.end();) {
      Live& live = *it->second;
      const bool lost = live.producer == index && live.stage != Live::Stage::kPrefill;
      if (live.consumer == index && live.stage != Live::Stage::kDecode) live.consumer = kNoWorker;
      if (lost && live.stage == Live::Stage::kToDecode) {
        live.handover = 0;
        live.names.clear();
      }
      it = lost ? by_handover_.erase(it) : std::next(it);
    }
    const auto work = std::exchange(worker.work, {});
    for (const auto& [ticket, live] : work) {
      if (auto end = recover(live, index, why)) ended.push_back(*std::move(end));
    }
    dispatch_locked();
    schedule_.notify_all();
  }
  for (const Ended& one : ended) tell(one);
}

// Nothing but the word that it has ended was lost with its worker, if the last token is out.
std::optional<FinishReason> ProcessRuntime::ended_by_tokens(const Live& live) const {
  if (live.generated.empty()) return std::nullopt;
  const std::vector<TokenId> ending = ending_ids(live.request, options_.eos_ids);
  if (std::ranges::find(ending, live.generated.back()) != ending.end()) return FinishReason::kStop;
  return live.generated.size() >= live.request.max_tokens ? std::optional(FinishReason::kLength) : std::nullopt;
}

// What was lost with its worker goes on at another one, or ends.
std::optional<ProcessRuntime::Ended> ProcessRuntime::recover(const LivePtr& live, std::size_t index, const Error& why) {
  leave_worker(*live);
  // With its first token out, also if its worker died before it could say that it was done.
  const bool decoding = !live->generated.empty();
  end_handover(*live);
  live->consumer = kNoWorker;
  if (live->cancelled_at != Nanos{0}) return end_locked(live, FinishReason::kCancelled, std::nullopt);
  if (const auto said_all = ended_by_tokens(*live)) return end_locked(live, *said_all, std::nullopt);
  const WorkerState& lost = *workers_[index];
  const bool other = std::ranges::any_of(
      workers_, [&](const auto& worker) { return worker.get() != &lost && worker->is(lost.role()) && worker->up; });
  const bool goes_on =
      recovery_ != Recovery::kFail && !live->was_retried && (recovery_ != Recovery::kRetryOther || other);
  if (!goes_on) {
    const char* reason = live->was_retried              ? ", the second one that was lost with it"
                         : recovery_ == Recovery::kFail ? ", and recovery is fail"
                                                        : ", and there is no other";
    return end_locked(
        live, FinishReason::kFailed,
        Error{ErrorCode::kUnavailable, fmt::format("request {}: worker {} was lost{}: {}", live->request.id,
                                                   lost.link->worker().name, reason, why.message)});
  }
  live->was_retried = true;
  live->excluded = index;
  live->stage = decoding ? Live::Stage::kToDecode : Live::Stage::kToPrefill;
  (decoding ? to_decode_ : to_prefill_).emplace(live->arrival, live);
  return std::nullopt;
}

// Those that follow what was told: a worker that took over computes the prompt from its start.
std::span<const PromptToken> ProcessRuntime::untold(const Live& live, std::span<const PromptToken> tokens) {
  const auto next = [&](const PromptToken& token) { return token.position == live.prompt_told; };
  const auto begin = std::ranges::find_if(tokens, next);
  std::size_t position = live.prompt_told;
  const auto end = std::find_if(begin, tokens.end(), [&](const PromptToken& token) {
    return token.position != position++ || token.position >= live.request.prompt.size() || token.logprobs.empty();
  });
  return {begin, end};
}

void ProcessRuntime::on_event(std::size_t worker, const WorkerEvent& event) {
  std::optional<Ended> ended;
  LivePtr live;
  const SampledToken* token = nullptr;
  std::span<const PromptToken> prompt;
  {
    MutexLock lock(mutex_);
    if (const auto* imported = std::get_if<event::Imported>(&event)) return on_imported(imported->handover);
    const std::uint64_t ticket = std::visit(
        [](const auto& e) -> std::uint64_t {
          if constexpr (requires { e.ticket; }) return e.ticket;
          return 0;
        },
        event);
    const auto it = by_ticket_.find(ticket);
    if (it == by_ticket_.end()) return;  // of work that ended, or was given to another
    live = it->second;
    if (const auto* e = std::get_if<event::Token>(&event)) {
      token = &e->token;
      live->generated.push_back(token->id);
      if (live->first_token == Nanos{0}) live->first_token = options_.clock->now();
    } else if (const auto* told = std::get_if<event::Prompt>(&event)) {
      prompt = untold(*live, told->tokens);
      live->prompt_told += prompt.size();
    } else if (std::holds_alternative<event::Admitted>(event)) {
      on_admitted(worker, live);
    } else if (const auto* names = std::get_if<event::Names>(&event)) {
      live->names.insert(live->names.end(), names->names.begin(), names->names.end());
    } else if (const auto* prefilled = std::get_if<event::Prefilled>(&event)) {
      on_prefilled(live, *prefilled);
    } else if (const auto* finished = std::get_if<event::Finished>(&event)) {
      ended = on_finished(live, *finished);
    }
  }
  if (token != nullptr || !prompt.empty()) {
    MutexLock lock(live->telling);
    if (!live->ended && token != nullptr) live->listener->on_token(*token);
    if (!live->ended && !prompt.empty()) live->listener->on_prompt(prompt);
  }
  if (ended) tell(*ended);
}

void ProcessRuntime::on_admitted(std::size_t worker, const LivePtr& live) {
  live->here = options_.clock->now();
  if (live->admitted == Nanos{0}) {
    live->admitted = live->here;
    --queued_;
  }
  // Its KV can be taken while it is still being made.
  if (live->stage != Live::Stage::kPrefill || options_.transfer == Transfer::kDirect) return;
  const auto chosen = choose(*decode_policy_, "decode", *live);
  if (!chosen) return;
  live->consumer = *chosen;
  net::BodyWriter body;
  body.put_u64(live->handover).put_string(workers_[worker]->hello.kv_address).put_u64(live->request.prompt.size());
  workers_[*chosen]->link->send(WorkerOp::kImport, std::move(body).take());
}

void ProcessRuntime::on_prefilled(const LivePtr& live, const event::Prefilled& event) {
  live->metrics = event.metrics;
  live->kv_tokens = event.kv_tokens;
  live->handed_over = event.handed_over;
  leave_worker(*live);
  if (!event.handed_over) end_handover(*live);
  live->stage = Live::Stage::kToDecode;
  to_decode_.emplace(live->arrival, live);
  dispatch_locked();
}

std::optional<ProcessRuntime::Ended> ProcessRuntime::on_finished(const LivePtr& live, const event::Finished& event) {
  const RequestMetrics& last = event.metrics;
  if (live->stage == Live::Stage::kPrefill) {
    live->metrics = last;
  } else {
    RequestMetrics& sum = live->metrics;
    sum.transport_ms += last.transport_ms;
    sum.unpack_ms += last.unpack_ms;
    sum.import_ms += last.import_ms;
    sum.transfer_bytes += last.transfer_bytes;
    sum.preemptions += last.preemptions;
  }
  leave_worker(*live);
  Ended ended = end_locked(live, event.reason, event.error);
  dispatch_locked();
  return ended;
}

// Its producer can let go.
void ProcessRuntime::on_imported(std::uint64_t handover) {
  const auto it = by_handover_.find(handover);
  if (it == by_handover_.end()) return;
  Live& live = *it->second;
  if (live.producer != kNoWorker && live.stage != Live::Stage::kPrefill)
    workers_[live.producer]->link->send(WorkerOp::kRelease, body_of(handover));
  if (live.stage == Live::Stage::kPrefill) return;  // it gave up before there was all of it
  by_handover_.erase(it);
}

// ---- endings ----

void ProcessRuntime::leave_worker(Live& live) {
  if (live.worker == kNoWorker) return;
  WorkerState& worker = *workers_[live.worker];
  const bool prefilling = live.stage == Live::Stage::kPrefill;
  const StagePlace place{worker.link->worker().name, worker.hello.pid};
  const std::string producer = live.producer == kNoWorker ? "" : workers_[live.producer]->link->worker().name;
  log_.left({live.request.id, live.metrics, prefilling, place, producer, live.submitted, live.admitted, live.here});
  live.here = Nanos{0};
  worker.work.erase(live.ticket);
  by_ticket_.erase(live.ticket);
  live.worker = kNoWorker;
  live.ticket = 0;
}

// Nobody wants its KV any more; both ends are told, in whatever state they are.
void ProcessRuntime::end_handover(Live& live) {
  if (live.handover == 0) return;
  for (const std::size_t end : {live.producer, live.consumer}) {
    if (end != kNoWorker) workers_[end]->link->send(WorkerOp::kRelease, body_of(live.handover));
  }
  by_handover_.erase(live.handover);
  live.handover = 0;
  live.names.clear();
}

ProcessRuntime::Ended ProcessRuntime::end_locked(const LivePtr& live, FinishReason reason, std::optional<Error> error) {
  if (live->worker != kNoWorker) workers_[live->worker]->link->send(WorkerOp::kCancel, body_of(live->ticket));
  leave_worker(*live);
  end_handover(*live);
  to_prefill_.erase(live->arrival);
  to_decode_.erase(live->arrival);
  live_.erase(live->request.id);
  RequestMetrics& metrics = live->metrics;
  measure_ending(metrics, live->generated.size(), live->submitted, live->first_token, options_.clock->now());
  const bool was_admitted = live->admitted != Nanos{0};
  if (was_admitted) {
    metrics.queue_ms = std::max(0.0, to_ms(live->admitted - live->submitted) - metrics.lookup_ms - metrics.restore_ms);
  } else {
    log_.never_admitted(live->request.id, live->submitted);
    --queued_;
  }
  count_ending(counters_, reason, metrics, was_admitted);
  if (live_.empty()) idle_.notify_all();
  return {live, {reason, std::move(error), metrics}};
}

void ProcessRuntime::tell(const Ended& ended) {
  MutexLock lock(ended.live->telling);
  if (std::exchange(ended.live->ended, true)) return;
  ended.live->listener->on_finish(ended.outcome);
}

}  // namespace nmc::engine
