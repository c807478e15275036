#include "engine/worker.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "engine/request_limits.h"
#include "engine/sampler.h"

namespace nmc::engine {
namespace {

// How long a worker that waits for memory sleeps before it looks again. Releases wake it; this covers memory that comes
// back without a word (a finished write to disk, a deadline that passed).
constexpr auto kRetryInterval = std::chrono::milliseconds(20);
// Of a sequence that wants the logits of each: they take vocabulary times four bytes.
constexpr std::size_t kPromptRowsMax = 32;

using Sequences = std::deque<std::unique_ptr<Sequence>>;

// The place of the inserted sequence.
std::size_t insert_by_arrival(Sequences& sequences, std::unique_ptr<Sequence> sequence) {
  const auto older = [](const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
    return a->arrival < b->arrival;
  };
  const auto place = std::upper_bound(sequences.begin(), sequences.end(), sequence, older);
  const auto inserted = sequences.insert(place, std::move(sequence));
  return static_cast<std::size_t>(inserted - sequences.begin());
}

}  // namespace

Worker::Worker(std::string name, std::string role, WorkerParts parts, WorkerHooks hooks)
    : name_(std::move(name)),
      role_(std::move(role)),
      parts_(parts),
      hooks_(std::move(hooks)),
      clock_(*parts.options->clock) {}

Worker::~Worker() { stop(); }

void Worker::start() {
  started_ns_.store(clock_.now().count(), std::memory_order_relaxed);
  alive_.store(true, std::memory_order_relaxed);
  thread_ = std::thread([this] { run(); });
}

void Worker::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Worker::enqueue(std::unique_ptr<Sequence> sequence) {
  waiting_count_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  inbox_.push_back(std::move(sequence));
  wake_.notify_one();
}

void Worker::poke() {
  MutexLock lock(mutex_);
  poked_ = true;
  wake_.notify_one();
}

WorkerStatus Worker::status() const {
  WorkerStatus status{.name = name_, .role = role_, .pid = ::getpid()};
  status.state = alive_.load(std::memory_order_relaxed) ? "ready" : "stopped";
  status.queued = waiting_count_.load(std::memory_order_relaxed);
  status.running = running_count_.load(std::memory_order_relaxed);
  const Nanos wall = uptime();
  status.utilization = wall > Nanos{0} ? to_ms(busy()) / to_ms(wall) : 0;
  return status;
}

// ---- The loop -------------------------------------------------------------------------------------------------------

void Worker::run() {
  while (take_inbox()) {
    end_abandoned();
    admit();
    if (!running_.empty()) step();
  }
  for (Sequences* sequences : {&running_, &waiting_}) {
    while (!sequences->empty()) {
      finish(*sequences->front(), FinishReason::kCancelled);
      retire(*sequences, 0);
    }
  }
  alive_.store(false, std::memory_order_relaxed);
}

// Moves new arrivals to waiting_, sleeping while there is nothing to do. False when the worker is to stop.
bool Worker::take_inbox() {
  MutexLock lock(mutex_);
  while (!stopping_ && inbox_.empty() && !poked_ && running_.empty()) {
    if (waiting_.empty()) {
      wake_.wait(mutex_);
    } else if (!admission_blocked_ || !wake_.wait_until(mutex_, std::chrono::steady_clock::now() + kRetryInterval)) {
      break;
    }
  }
  if (poked_ || running_.empty()) admission_blocked_ = false;
  poked_ = false;
  for (std::unique_ptr<Sequence>& sequence : inbox_) insert_by_arrival(waiting_, std::move(sequence));
  inbox_.clear();
  return !stopping_;
}

void Worker::end_abandoned() {
  end_abandoned_in(running_);
  end_abandoned_in(waiting_);
}

void Worker::end_abandoned_in(Sequences& sequences) {
  const Nanos now = clock_.now();
  for (std::size_t i = 0; i < sequences.size();) {
    Sequence& sequence = *sequences[i];
    const bool cancelled = sequence.cancel->cancelled.load(std::memory_order_relaxed);
    const bool expired = sequence.request.deadline && now >= *sequence.request.deadline;
    const bool queued_too_long =
        sequence.request.queue_deadline && sequence.admitted == Nanos{0} && now >= *sequence.request.queue_deadline;
    if (!cancelled && !expired && !queued_too_long) {
      ++i;
      continue;
    }
    if (cancelled) {
      finish(sequence, FinishReason::kCancelled);
    } else if (!expired) {
      finish(sequence, FinishReason::kFailed, queue_deadline_error(sequence.request));
    } else {
      finish(sequence, FinishReason::kFailed, deadline_error(sequence.request, sequence.generated()));
    }
    retire(sequences, i);
  }
}

// ---- Admission ------------------------------------------------------------------------------------------------------

void Worker::admit() {
  while (!admission_blocked_ && !waiting_.empty() && running_.size() < parts_.options->max_running) {
    Sequence& sequence = *waiting_.front();
    if ((hooks_.may_admit && !hooks_.may_admit()) || !make_ready(sequence)) {
      // With nobody running here, nobody but those behind it will give memory back.
      admission_blocked_ = !running_.empty() || !take_back_newest_parcel(sequence.arrival);
      continue;
    }
    if (sequence.admitted == Nanos{0}) {
      sequence.admitted = clock_.now();
      sequence.metrics.queue_ms =
          to_ms(sequence.admitted - sequence.submitted) - sequence.metrics.lookup_ms - sequence.metrics.restore_ms;
      hooks_.on_admitted(sequence);
    }
    const std::size_t place = insert_by_arrival(running_, std::move(waiting_.front()));
    waiting_.pop_front();
    waiting_count_.fetch_sub(1, std::memory_order_relaxed);
    running_count_.fetch_add(1, std::memory_order_relaxed);

    if (sequence.remaining() == 0) {  // the cache knew it all, the last logits too
      const std::vector<float> logits = std::move(sequence.logits);
      if (next_token(sequence, logits)) retire(running_, place);
    }
  }
  set_lacks_memory(admission_blocked_ && !waiting_.empty());
}

// Those who asked may_admit() in vain hear of it when that changes.
void Worker::set_lacks_memory(bool lacks) {
  if (lacks_memory_.exchange(lacks, std::memory_order_relaxed) && !lacks) hooks_.on_memory_freed();
}

// Gives the sequence all blocks it needs to run. False, with nothing held: no memory now.
bool Worker::make_ready(Sequence& sequence) {
  if (sequence.parcel) {
    const Result<void> received = parts_.inbound->receive(sequence);
    if (!received && received.error().code == ErrorCode::kResourceExhausted) return false;
    if (!received)
      log_warning("request {}: hand-over lost, computing again: {}", sequence.request.id, received.error().message);
  }
  if (sequence.blocks.empty() && parts_.cache != nullptr && !sequence.tells_prompt())
    parts_.cache->restore(sequence, sequence.admitted == Nanos{0} && sequence.generated() == 0);
  return attach_blocks(sequence);
}

bool Worker::attach_blocks(Sequence& sequence) {
  const std::size_t needed = blocks_needed(sequence);
  if (sequence.blocks.size() >= needed) return true;
  Result<std::vector<store::Reservation>> more = parts_.store->reserve_blocks(needed - sequence.blocks.size());
  if (!more) {
    release_blocks(sequence);
    sequence.logits.clear();
    return false;
  }
  for (store::Reservation& block : *more) sequence.add_block(Block(std::move(block)));
  return true;
}

// All tokens and the next one, but never past the last whose KV is used: the final token's is not computed.
std::size_t Worker::blocks_needed(const Sequence& sequence) const {
  const std::size_t last = sequence.request.prompt.size() + sequence.request.max_tokens - 1;
  const std::size_t tokens = std::max(sequence.tokens.size(), std::min(sequence.tokens.size() + 1, last));
  return (tokens + block_tokens() - 1) / block_tokens();
}

// ---- A step ---------------------------------------------------------------------------------------------------------

void Worker::step() {
  const Nanos begin = clock_.now();
  grow_running();
  const std::vector<Planned> planned = plan();
  if (!planned.empty()) {
    std::vector<model::Chunk> chunks;
    for (const Planned& item : planned) {
      const Sequence& sequence = *item.sequence;
      const std::size_t end = sequence.computed + item.tokens;
      chunks.push_back({.tokens = std::span(sequence.tokens).subspan(sequence.computed, item.tokens),
                        .start = sequence.computed,
                        .blocks = std::span(sequence.addresses).first((end + block_tokens() - 1) / block_tokens()),
                        .logits = item.logits,
                        .logit_rows = item.rows,
                        .adapter = sequence.request.adapter.get()});
    }
    if (auto hit = failpoint("worker.step")) log_warning("{}: {}", name_, hit->message);
    const bool watched = std::ranges::any_of(planned, [](const Planned& p) { return p.sequence->outlet != nullptr; });
    const auto tell_outlets = [&](std::size_t layer) {
      for (const Planned& item : planned) {
        if (item.sequence->outlet == nullptr) continue;
        item.sequence->outlet->layer_done(*item.sequence, item.sequence->computed + item.tokens, layer);
      }
    };
    parts_.decoder->forward(*parts_.pool, chunks, static_cast<std::uint32_t>(block_tokens()), workspace_,
                            watched ? tell_outlets : std::function<void(std::size_t)>());
    steps_.fetch_add(1, std::memory_order_relaxed);
    for (const Planned& item : planned) advance(item);
    std::size_t kept = 0;
    while (kept < running_.size()) {
      if (running_[kept]->finished)
        retire(running_, kept);
      else
        ++kept;
    }
  }
  busy_ns_.fetch_add((clock_.now() - begin).count(), std::memory_order_relaxed);
}

// A block for the next token of every running sequence, oldest first, at the newest one's cost.
void Worker::grow_running() {
  for (std::size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    if (sequence.blocks.size() * block_tokens() >= sequence.tokens.size()) {
      ++i;
      continue;
    }
    Result<store::Reservation> block =
        parts_.store->reserve(store::ObjectClass::kBlock, parts_.store->options().block_bytes);
    if (block) {
      sequence.add_block(Block(std::move(*block)));
    } else if (!take_back_newest_parcel(running_.back()->arrival)) {
      preempt_newest();  // perhaps this very one: then the loop ends, since it was the last
    }
  }
}

// The blocks in the parcel of the newest sequence that waits with one, if it came after `newer_than`: its KV will be
// computed again. False when there is none.
bool Worker::take_back_newest_parcel(std::uint64_t newer_than) {
  const auto holder = std::find_if(waiting_.rbegin(), waiting_.rend(), [](const std::unique_ptr<Sequence>& sequence) {
    return sequence->parcel != nullptr && sequence->parcel->blocks() > 0;
  });
  if (holder == waiting_.rend() || (*holder)->arrival <= newer_than) return false;
  (*holder)->parcel.reset();
  ++(*holder)->metrics.preemptions;
  preemptions_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Worker::preempt_newest() {
  set_lacks_memory(true);  // first, or the worker before this one takes what is given back
  std::unique_ptr<Sequence> newest = std::move(running_.back());
  running_.pop_back();
  release_blocks(*newest);
  ++newest->metrics.preemptions;
  preemptions_.fetch_add(1, std::memory_order_relaxed);
  running_count_.fetch_sub(1, std::memory_order_relaxed);
  waiting_count_.fetch_add(1, std::memory_order_relaxed);
  insert_by_arrival(waiting_, std::move(newest));
  admission_blocked_ = true;  // until a running sequence gives something back
}

std::vector<Worker::Planned> Worker::plan() {
  std::vector<Planned> planned;
  std::size_t budget = parts_.options->max_batch_tokens;
  const auto add = [&](Sequence& sequence, std::size_t tokens) {
    if (sequence.tells_prompt()) tokens = std::min(tokens, kPromptRowsMax);
    const std::size_t rows = sequence.tells_prompt() ? tokens : tokens == sequence.remaining() ? 1 : 0;
    planned.push_back({&sequence, tokens, rows, nullptr});
    budget -= std::min(budget, tokens);
  };
  for (const auto& sequence : running_) {
    if (sequence->remaining() == 1) add(*sequence, 1);
  }
  for (const auto& sequence : running_) {
    if (sequence->remaining() > 1 && budget > 0) add(*sequence, std::min(budget, sequence->remaining()));
  }
  give_logits(planned);
  return planned;
}

void Worker::give_logits(std::vector<Planned>& planned) {
  const std::size_t vocab = parts_.decoder->config().vocab;
  std::size_t rows = 0;
  for (const Planned& item : planned) rows += item.rows;
  if (logits_.size() < rows * vocab) logits_.resize(rows * vocab);
  float* next = logits_.data();
  for (Planned& item : planned) {
    if (item.rows > 0) item.logits = next;
    next += item.rows * vocab;
  }
}

void Worker::advance(const Planned& planned) {
  Sequence& sequence = *planned.sequence;
  if (sequence.tells_prompt()) tell_prompt(planned);
  sequence.computed += planned.tokens;
  if (parts_.cache != nullptr) parts_.cache->publish(sequence);
  if (sequence.remaining() > 0) return;
  const std::size_t vocab = parts_.decoder->config().vocab;
  const std::span<const float> logits(planned.logits + (planned.rows - 1) * vocab, vocab);
  if (sequence.generated() == 0) {
    sequence.metrics.prefill_ms = to_ms(clock_.now() - sequence.admitted);
    if (parts_.cache != nullptr) parts_.cache->publish_tail(sequence, logits);
  }
  sequence.finished = next_token(sequence, logits);
}

// What was told before a preemption isn't told again.
void Worker::tell_prompt(const Planned& planned) {
  Sequence& sequence = *planned.sequence;
  const GenerateRequest& request = sequence.request;
  const std::size_t vocab = parts_.decoder->config().vocab;
  std::vector<PromptToken> told;
  for (std::size_t row = 0; row < planned.rows; ++row) {
    const std::size_t position = sequence.computed + row + 1;
    if (position < sequence.prompt_told || position >= request.prompt.size()) continue;
    const std::span<const float> logits(planned.logits + row * vocab, vocab);
    const TokenId id = request.prompt[position];
    told.push_back({.position = static_cast<std::uint32_t>(position),
                    .rank = rank_of(logits, id),
                    .logprobs = logprobs_of(logits, id, *request.prompt_logprobs)});
  }
  if (told.empty()) return;
  sequence.prompt_told = told.back().position + std::size_t{1};
  sequence.listener->on_prompt(told);
}

SampledToken Worker::choose_token(const Sequence& sequence, std::span<const float> logits) const {
  const GenerateRequest& request = sequence.request;
  const std::span<const TokenId> tokens = sequence.tokens;
  History history{.prompt = tokens.first(request.prompt.size()), .generated = tokens.subspan(request.prompt.size())};
  if (history.generated.size() < request.min_tokens) history.barred = sequence.ending_ids;
  SampledToken sampled;
  sampled.id = history.generated.size() < request.forced.size()
                   ? request.forced[history.generated.size()]
                   : sample(logits, request.sampling, tokens.size(), history);
  if (request.logprobs) sampled.logprobs = logprobs_of(logits, sampled.id, *request.logprobs);
  return sampled;
}

bool Worker::next_token(Sequence& sequence, std::span<const float> logits) {
  if (parts_.options->on_logits) parts_.options->on_logits(sequence.request.id, sequence.tokens.size(), logits);
  const SampledToken sampled = choose_token(sequence, logits);
  const TokenId token = sampled.id;
  sequence.tokens.push_back(token);
  if (sequence.chain) sequence.chain->append(token);
  if (sequence.first_token == Nanos{0}) sequence.first_token = clock_.now();
  sequence.listener->on_token(sampled);

  if (std::ranges::find(sequence.ending_ids, token) != sequence.ending_ids.end()) {
    finish(sequence, FinishReason::kStop);
    return true;
  }
  if (sequence.generated() >= sequence.request.max_tokens) {
    finish(sequence, FinishReason::kLength);
    return true;
  }
  if (hooks_.on_prefilled && !sequence.stays && sequence.generated() == 1) {
    sequence.passed_on = true;
    return true;
  }
  return false;
}

// ---- Endings --------------------------------------------------------------------------------------------------------

// Takes a sequence that is done here off its list, handing it on where that is what was decided.
void Worker::retire(Sequences& from, std::size_t index) {
  std::unique_ptr<Sequence> sequence = std::move(from[index]);
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(index));
  (&from == &running_ ? running_count_ : waiting_count_).fetch_sub(1, std::memory_order_relaxed);
  admission_blocked_ = false;
  if (sequence->passed_on) {
    sequence->finished = false;
    sequence->passed_on = false;
    hooks_.on_prefilled(std::move(sequence));
  }
}

void Worker::release_blocks(Sequence& sequence) {
  if (parts_.cache != nullptr) {
    parts_.cache->release(sequence);
  } else {
    sequence.release_blocks();
  }
}

void Worker::finish(Sequence& sequence, FinishReason reason, std::optional<Error> error) {
  release_blocks(sequence);
  sequence.parcel.reset();
  hooks_.on_finished(sequence, reason, std::move(error));
  hooks_.on_memory_freed();
}

}  // namespace nmc::engine
