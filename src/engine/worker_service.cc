#include "engine/worker_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/entropy.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "engine/make_sequence.h"
#include "net/async_signal.h"

namespace nmc::engine {
namespace {

constexpr std::size_t kBlockNamesMax = 1 << 20;  // of one hand-over
// After the end of work, for figures that show it.
constexpr Nanos kSettling = std::chrono::milliseconds(20);
constexpr Nanos kHeldAge = std::chrono::milliseconds(100);
constexpr auto kPeerDeadline = std::chrono::seconds(5);

WorkerOp op_of(const net::Request& request) { return static_cast<WorkerOp>(request.op); }

net::Reply done() { return net::Reply(net::BodyWriter()); }

}  // namespace

// What one front has asked for, and what it has yet to hear. Outlives its connections while a sequence refers to it.
class WorkerService::Front {
 public:
  struct Work {
    std::shared_ptr<CancelToken> cancel;
    std::uint64_t awaited = 0;  // hand-over whose KV has to come before it can begin; 0: none
  };

  explicit Front(std::uint64_t session, Nanos heartbeat) : session_(session), heartbeat_(heartbeat) {}

  std::uint64_t session() const { return session_; }
  Nanos heartbeat() const { return heartbeat_; }
  net::AsyncSignal& signal() { return signal_; }

  void tell(const WorkerEvent& event) {
    net::BodyWriter body;
    put_event(body, event);
    {
      MutexLock lock(mutex_);
      if (gone_) return;
      events_.push_back(std::move(body).take());
      settling_ = settling_ || !std::holds_alternative<event::Token>(event);
    }
    signal_.notify();
  }

  bool has_events() const {
    MutexLock lock(mutex_);
    return !events_.empty() || gone_;
  }

  // True once after each change that figures lag behind.
  bool settling() {
    MutexLock lock(mutex_);
    return events_.empty() && std::exchange(settling_, false);
  }

  // The oldest ones, as many as an answer takes.
  std::vector<std::vector<std::byte>> take_events() {
    MutexLock lock(mutex_);
    std::vector<std::vector<std::byte>> taken;
    std::size_t bytes = 0;
    while (!events_.empty() && (taken.empty() || bytes + events_.front().size() <= kEventBytesMax)) {
      bytes += events_.front().size();
      taken.push_back(std::move(events_.front()));
      events_.pop_front();
    }
    return taken;
  }

  bool add(std::uint64_t ticket, Work work) {
    MutexLock lock(mutex_);
    return !gone_ && work_.emplace(ticket, std::move(work)).second;
  }
  void remove(std::uint64_t ticket) {
    MutexLock lock(mutex_);
    work_.erase(ticket);
  }
  std::optional<Work> find(std::uint64_t ticket) const {
    MutexLock lock(mutex_);
    const auto it = work_.find(ticket);
    return it == work_.end() ? std::nullopt : std::optional(it->second);
  }
  void add_handover(std::uint64_t handover) {
    MutexLock lock(mutex_);
    handovers_.push_back(handover);
  }
  void remove_handover(std::uint64_t handover) {
    MutexLock lock(mutex_);
    std::erase(handovers_, handover);
  }

  // All that it asked for; nothing is added from now on.
  struct Left {
    std::map<std::uint64_t, Work> work;
    std::vector<std::uint64_t> handovers;
  };
  Left leave() {
    MutexLock lock(mutex_);
    gone_ = true;
    events_.clear();
    return {std::move(work_), std::move(handovers_)};
  }

 private:
  const std::uint64_t session_;
  const Nanos heartbeat_;
  net::AsyncSignal signal_;
  mutable Mutex mutex_;
  bool gone_ NMC_GUARDED_BY(mutex_) = false;
  bool settling_ NMC_GUARDED_BY(mutex_) = false;
  std::deque<std::vector<std::byte>> events_ NMC_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Work> work_ NMC_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> handovers_ NMC_GUARDED_BY(mutex_);
};

class WorkerService::TicketListener final : public RequestListener {
 public:
  TicketListener(std::shared_ptr<Front> front, std::uint64_t ticket, std::uint64_t handover)
      : front_(std::move(front)), ticket_(ticket), handover_(handover) {}

  void on_prompt(std::span<const PromptToken> tokens) override {
    front_->tell(event::Prompt{ticket_, {tokens.begin(), tokens.end()}});
  }
  void on_token(const SampledToken& token) override { front_->tell(event::Token{ticket_, token}); }
  void on_finish(const Outcome& outcome) override {
    if (auto hit = failpoint("worker.finish")) log_warning("worker: {}", hit->message);
    front_->remove(ticket_);
    front_->tell(event::Finished{ticket_, outcome.reason, outcome.error, outcome.metrics});
  }

  Front& front() { return *front_; }
  std::uint64_t handover() const { return handover_; }  // whose KV its sequence leaves; 0: none

 private:
  const std::shared_ptr<Front> front_;
  const std::uint64_t ticket_;
  const std::uint64_t handover_;
};

// Of a connection.
struct WorkerService::State final : net::SessionState {
  std::shared_ptr<Front> front;  // whose connection it is, by kHello or kEvents; null: of a worker that takes KV
  // Lists that came ahead of their kAssign.
  struct Lists {
    std::vector<TokenId> prompt, generated, forced;
    std::vector<BlockName> names;
  };
  std::map<std::uint64_t, Lists> ahead;
};

// ---- start and stop ----

WorkerService::WorkerService(const WorkerServiceOptions& options, const model::Decoder& decoder, kv::Namespace ns,
                             store::Store& store, ThreadPool& pool)
    : options_(options), decoder_(decoder), store_(store), ns_(std::move(ns)) {
  kv_ = {.layout = ns_.layout,
         .ns = ns_.digest(),
         .transfer = options_.runtime.transfer,
         .store = &store_,
         .clock = options_.runtime.clock,
         .lease = options_.handover_lease};
  cache_ = PrefixCache::of_worker(options_.name, store_, ns_, decoder_.config().vocab, options_.runtime);
  exports_ = std::make_unique<KvExports>(kv_);
  const WorkerParts parts{.decoder = &decoder_,
                          .store = &store_,
                          .pool = &pool,
                          .cache = cache_.get(),
                          .inbound = &inbound_,
                          .options = &options_.runtime};
  worker_ = std::make_unique<Worker>(options_.name, options_.role, parts, hooks());
  imports_ = std::make_unique<KvImports>(
      kv_, net::ChannelOptions{.token = options_.token, .progress_deadline = kPeerDeadline});
}

Result<std::unique_ptr<WorkerService>> WorkerService::start(const WorkerServiceOptions& options,
                                                            const model::Decoder& decoder, kv::Namespace ns,
                                                            store::Store& store, ThreadPool& pool) {
  NMC_REQUIRE(store.options().block_bytes == ns.layout.block_bytes(), "store blocks of {} bytes, layout {}",
              store.options().block_bytes, ns.layout.to_string());
  std::unique_ptr<WorkerService> service(new WorkerService(options, decoder, std::move(ns), store, pool));
  service->worker_->start();
  net::ChannelServerOptions carriers;
  carriers.unix_path = options.unix_path;
  carriers.tcp_host = options.tcp_host;
  carriers.tcp_port = options.tcp_port;
  carriers.token = options.token;
  carriers.insecure = options.insecure;
  if (!options.unix_path.empty()) service->kv_address_ = "unix:" + options.unix_path;
  if (options.runtime.transfer == Transfer::kTcp && options.tcp_host.empty())
    return invalid_argument("worker {}: KV goes over TCP, so it takes a TCP address", options.name);
  // Its first request may come before the line after this one.
  MutexLock lock(service->mutex_);
  NMC_ASSIGN_OR_RETURN(service->server_, net::ChannelServer::start(std::move(carriers), *service));
  if (options.runtime.transfer == Transfer::kTcp) {
    const net::Address tcp{.host = options.tcp_host, .port = service->server_->tcp_port()};
    service->kv_address_ = tcp.to_string();
  }
  service->housekeeper_ = std::thread([self = service.get()] { self->keep_house(); });
  return service;
}

WorkerService::~WorkerService() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (housekeeper_.joinable()) housekeeper_.join();
  server_.reset();   // its sessions drop their fronts
  imports_.reset();  // those that waited for KV are the worker's now
  worker_->stop();
}

void WorkerService::keep_house() {
  const Nanos pause = std::max<Nanos>(options_.handover_lease / 8, std::chrono::milliseconds(10));
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) wake_.wait_until(mutex_, std::chrono::steady_clock::now() + pause);
      if (stopping_) return;
    }
    exports_->release_expired();
  }
}

// ---- connections ----

void WorkerService::on_open(net::Session& session) { session.state = std::make_unique<State>(); }

// Either of its connections: a front that has lost one begins anew.
void WorkerService::on_close(net::Session& session) {
  const std::shared_ptr<Front> front = static_cast<State&>(*session.state).front;
  if (front != nullptr) drop_front(front);
}

void WorkerService::drop_front(const std::shared_ptr<Front>& front) {
  {
    MutexLock lock(mutex_);
    if (front_ == front) front_.reset();
  }
  const Front::Left left = front->leave();
  for (const auto& [ticket, work] : left.work) {
    work.cancel->cancelled.store(true, std::memory_order_relaxed);
    if (work.awaited != 0) imports_->drop(work.awaited);
  }
  for (const std::uint64_t handover : left.handovers) {
    imports_->drop(handover);
    exports_->release(handover);
  }
  worker_->poke();
  front->signal().notify();
}

WorkerService::Awaited WorkerService::handle(net::Session& session, net::Request& request) {
  if (op_of(request) == WorkerOp::kEvents) co_return co_await events(session, request);
  if (op_of(request) == WorkerOp::kPull) co_return co_await exports_->pull(request);
  co_return answer(session, request);
}

net::Reply WorkerService::answer(net::Session& session, net::Request& request) {
  if (op_of(request) == WorkerOp::kHello) return hello(session, request);
  State& state = static_cast<State&>(*session.state);
  if (state.front == nullptr) return Error{ErrorCode::kPermissionDenied, "worker: only its front may ask for that"};
  net::BodyReader& body = request.body;
  switch (op_of(request)) {
    case WorkerOp::kTokens: {
      State::Lists& lists = state.ahead[body.get_u64("ticket")];
      const std::uint8_t which = body.get_u8("list");
      std::vector<TokenId>& list = which == static_cast<std::uint8_t>(TokenList::kPrompt)      ? lists.prompt
                                   : which == static_cast<std::uint8_t>(TokenList::kGenerated) ? lists.generated
                                                                                               : lists.forced;
      const std::vector<TokenId> piece = get_tokens(body);
      if (list.size() + piece.size() > options_.runtime.max_context)
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("worker: {} tokens, expected at most {}", list.size() + piece.size(),
                                 options_.runtime.max_context)};
      list.insert(list.end(), piece.begin(), piece.end());
      break;
    }
    case WorkerOp::kNames: {
      std::vector<BlockName>& names = state.ahead[body.get_u64("ticket")].names;
      const std::vector<BlockName> piece = get_names(body);
      if (names.size() + piece.size() > kBlockNamesMax)
        return Error{ErrorCode::kInvalidArgument, "worker: more blocks in one hand-over than there can be"};
      names.insert(names.end(), piece.begin(), piece.end());
      break;
    }
    case WorkerOp::kAssign: return assign(state, request);
    case WorkerOp::kCancel: return cancel(state, request);
    case WorkerOp::kImport:
    case WorkerOp::kRenew:
    case WorkerOp::kRelease: return on_handover(request, op_of(request), state);
    default: return Error{ErrorCode::kUnsupported, fmt::format("worker: message {} is unknown", request.op)};
  }
  if (const auto whole = body.finish(); !whole) return whole.error();
  return done();
}

net::Reply WorkerService::hello(net::Session& session, net::Request& request) {
  const FrontHello front = get_front_hello(request.body);
  if (const auto whole = request.body.finish(); !whole) return whole.error();
  const char* transfer = transfer_name(options_.runtime.transfer);
  if (front.layout != ns_.layout.to_string() || front.transfer != transfer)
    return Error{ErrorCode::kVersionMismatch,
                 fmt::format("worker {}: its KV is {} by {}, its front's is {} by {}: both must be started alike",
                             options_.name, ns_.layout.to_string(), transfer, front.layout, front.transfer)};
  if (front.ns != ns_.digest())
    return Error{ErrorCode::kVersionMismatch,
                 fmt::format("worker {}: its KV is of the namespace {}, its front's of {}: another model, dtype, "
                             "instruction level or release",
                             options_.name, ns_.digest().hex().substr(0, 16), front.ns.hex().substr(0, 16))};
  State& state = static_cast<State&>(*session.state);
  WorkerHello hello{.name = options_.name,
                    .role = options_.role,
                    .pid = ::getpid(),
                    .store = options_.store,
                    .now_ns = options_.runtime.clock->now().count()};
  {
    MutexLock lock(mutex_);
    if (front_ != nullptr || state.front != nullptr)
      return Error{ErrorCode::kAlreadyExists, fmt::format("worker {}: it serves another front", options_.name)};
    front_ = state.front = std::make_shared<Front>(machine_random(), front.heartbeat);
    hello.session = front_->session();
    hello.kv_address = kv_address_;
  }
  net::BodyWriter body;
  put_worker_hello(body, hello);
  return net::Reply(std::move(body));
}

WorkerService::Awaited WorkerService::events(net::Session& session, net::Request& request) {
  const std::uint64_t number = request.body.get_u64("session");
  if (const auto whole = request.body.finish(); !whole) co_return net::Reply(whole.error());
  State& state = static_cast<State&>(*session.state);
  if (state.front == nullptr) {
    MutexLock lock(mutex_);
    if (front_ != nullptr && front_->session() == number) state.front = front_;
  }
  const std::shared_ptr<Front> front = state.front;
  if (front == nullptr || front->session() != number)
    co_return net::Reply(Error{ErrorCode::kPermissionDenied, "worker: events are for its front only"});
  const std::uint64_t seen = front->signal().epoch();
  const bool settling = front->settling();
  if (!front->has_events()) co_await front->signal().wait(seen, settling ? kSettling : front->heartbeat());
  const std::vector<std::vector<std::byte>> taken = front->take_events();
  net::BodyWriter body;
  put_figures(body, figures());
  body.put_u32(static_cast<std::uint32_t>(taken.size()));
  for (const auto& one : taken) body.put_fixed(one);
  co_return net::Reply(std::move(body));
}

WorkerFigures WorkerService::figures() {
  const WorkerStatus status = worker_->status();
  WorkerFigures figures;
  figures.queued = status.queued;
  figures.running = status.running;
  figures.lacks_memory = worker_->lacks_memory();
  figures.busy_ns = worker_->busy().count();
  figures.wall_ns = worker_->uptime().count();
  figures.steps = worker_->steps();
  figures.preemptions = worker_->preemptions();
  figures.exports = exports_->count();
  figures.imports = imports_->count();
  // Counting them takes longer than the rest: what is asked at each step of a busy worker is as of a moment ago.
  MutexLock lock(mutex_);
  const Nanos now = options_.runtime.clock->now();
  if (status.running == 0 || now - held_at_ > kHeldAge) {
    held_ = store_.held();
    held_at_ = now;
  }
  figures.blocks_held = held_;
  return figures;
}

// ---- work ----

net::Reply WorkerService::assign(State& state, net::Request& request) {
  Assignment assignment = get_assignment(request.body);
  if (const auto whole = request.body.finish(); !whole) return whole.error();
  if (auto hit = failpoint("worker.assign")) return *std::move(hit);
  if (auto ahead = state.ahead.extract(assignment.ticket)) {
    assignment.request.prompt = std::move(ahead.mapped().prompt);
    assignment.request.forced = std::move(ahead.mapped().forced);
    assignment.generated = std::move(ahead.mapped().generated);
    assignment.names = std::move(ahead.mapped().names);
  }
  const std::uint64_t handover = assignment.handover;
  auto made = make_sequence(assignment, state.front);
  if (!made) return std::move(made).error();
  std::unique_ptr<Sequence> sequence = *std::move(made);
  const bool awaits = assignment.whole && handover != 0 && !assignment.source.empty();
  if (!state.front->add(sequence->ticket, {sequence->cancel, awaits ? handover : 0}))
    return Error{ErrorCode::kInvalidArgument, fmt::format("worker: ticket {} is in use", sequence->ticket)};
  if (awaits) {
    begin_import(state.front, handover, assignment.source, assignment.kv_tokens);
    const auto held = std::make_shared<std::unique_ptr<Sequence>>(std::move(sequence));
    imports_->take(handover, [this, held, handover, front = state.front](std::unique_ptr<Parcel> parcel) {
      (*held)->parcel = std::move(parcel);
      front->remove_handover(handover);
      worker_->enqueue(std::move(*held));
    });
    return done();
  }
  if (assignment.whole && handover != 0) {
    const auto on_taken = [front = state.front, handover] { front->tell(event::Imported{handover}); };
    sequence->parcel = named_parcel(kv_, std::move(assignment.names), assignment.kv_tokens, on_taken);
  }
  worker_->enqueue(std::move(sequence));
  return done();
}

Result<std::unique_ptr<Sequence>> WorkerService::make_sequence(Assignment& assignment,
                                                               const std::shared_ptr<Front>& front) const {
  GenerateRequest& request = assignment.request;
  if (request.prompt.empty()) return invalid_argument("worker: a request without a prompt");
  for (const auto* list : {&request.prompt, &assignment.generated, &request.forced}) {
    for (const TokenId id : *list) {
      if (id >= decoder_.config().vocab)
        return invalid_argument("worker: token id {}, expected ids below {}", id, decoder_.config().vocab);
    }
  }
  if (request.max_tokens == 0 || assignment.generated.size() >= request.max_tokens)
    return invalid_argument("worker: {} of {} tokens are out already", assignment.generated.size(), request.max_tokens);
  const std::uint64_t tokens = request.prompt.size() + assignment.generated.size();
  const bool handed = assignment.whole && assignment.handover != 0;
  if (handed && (assignment.kv_tokens == 0 || assignment.kv_tokens >= tokens))
    return invalid_argument("worker: KV of {} tokens for a sequence of {}", assignment.kv_tokens, tokens);
  if (handed && assignment.source.empty() && assignment.names.size() != ns_.layout.blocks_for(assignment.kv_tokens))
    return invalid_argument("worker: {} blocks are named, expected {}", assignment.names.size(),
                            ns_.layout.blocks_for(assignment.kv_tokens));
  if (!assignment.adapter.empty()) {
    const auto known = std::ranges::find(options_.adapters, assignment.adapter, &model::Adapter::digest);
    if (known == options_.adapters.end())
      return not_found("worker {}: it has no adapter of digest {}", options_.name, assignment.adapter);
    request.adapter = *known;
  }
  auto sequence = engine::make_sequence(std::move(request), assignment.generated, cache_.get(), options_.runtime);
  sequence->ticket = assignment.ticket;
  sequence->arrival = assignment.arrival;
  sequence->stays = assignment.whole;
  sequence->listener =
      std::make_shared<TicketListener>(front, assignment.ticket, assignment.whole ? 0 : assignment.handover);
  return sequence;
}

void WorkerService::begin_import(const std::shared_ptr<Front>& front, std::uint64_t handover, const std::string& source,
                                 std::uint64_t tokens) {
  front->add_handover(handover);
  imports_->begin(handover, source, tokens, [front, handover] { front->tell(event::Imported{handover}); });
}

net::Reply WorkerService::cancel(State& state, net::Request& request) {
  const std::uint64_t ticket = request.body.get_u64("ticket");
  if (const auto whole = request.body.finish(); !whole) return whole.error();
  state.ahead.erase(ticket);
  const auto work = state.front->find(ticket);
  if (!work) return done();  // its end is on its way
  work->cancel->cancelled.store(true, std::memory_order_relaxed);
  if (work->awaited != 0) imports_->drop(work->awaited);
  worker_->poke();
  return done();
}

net::Reply WorkerService::on_handover(net::Request& request, WorkerOp op, State& state) {
  const std::uint64_t handover = request.body.get_u64("hand-over");
  std::string source;
  std::uint64_t tokens = 0;
  if (op == WorkerOp::kImport) {
    source = request.body.get_string("source");
    tokens = request.body.get_u64("tokens");
  }
  if (const auto whole = request.body.finish(); !whole) return whole.error();
  if (op == WorkerOp::kImport) {
    if (tokens == 0 || tokens > options_.runtime.max_context)
      return Error{ErrorCode::kInvalidArgument, fmt::format("worker: KV of {} tokens", tokens)};
    begin_import(state.front, handover, source, tokens);
  } else if (op == WorkerOp::kRenew) {
    exports_->renew(handover);
  } else {
    state.front->remove_handover(handover);
    imports_->drop(handover);
    exports_->release(handover);
  }
  return done();
}

// ---- on the worker's thread ----

WorkerHooks WorkerService::hooks() {
  WorkerHooks hooks;
  hooks.on_admitted = [this](Sequence& sequence) {
    auto& listener = static_cast<TicketListener&>(*sequence.listener);
    if (listener.handover() != 0) {
      listener.front().add_handover(listener.handover());
      exports_->begin(listener.handover(), sequence);
    }
    listener.front().tell(event::Admitted{sequence.ticket});
  };
  hooks.on_prefilled = [this](std::unique_ptr<Sequence> sequence) { prefilled(std::move(sequence)); };
  hooks.on_finished = [this](Sequence& sequence, FinishReason reason, std::optional<Error> error) {
    finished(sequence, reason, std::move(error));
  };
  hooks.on_memory_freed = [] {};
  return hooks;
}

void WorkerService::prefilled(std::unique_ptr<Sequence> sequence) {
  auto& listener = static_cast<TicketListener&>(*sequence->listener);
  Front& front = listener.front();
  const std::uint64_t tokens = sequence->computed;
  const auto names = exports_->complete(listener.handover(), *sequence);
  if (!names)
    log_warning("request {}: hand-over failed, its KV is computed again: {}", sequence->request.id,
                names.error().message);
  front.remove(sequence->ticket);
  if (names) {
    for (std::size_t at = 0; at < names->size(); at += kNamesAPiece) {
      const auto piece = std::span(*names).subspan(at, std::min(kNamesAPiece, names->size() - at));
      front.tell(event::Names{sequence->ticket, {piece.begin(), piece.end()}});
    }
  }
  if (auto hit = failpoint("handover.sent")) log_warning("hand-over: {}", hit->message);
  front.tell(event::Prefilled{sequence->ticket, names.has_value(), tokens, sequence->metrics});
  sequence->outlet.reset();
  if (cache_ != nullptr)
    cache_->release(*sequence);
  else
    sequence->release_blocks();
}

void WorkerService::finished(Sequence& sequence, FinishReason reason, std::optional<Error> error) {
  const std::uint64_t handover = static_cast<TicketListener&>(*sequence.listener).handover();
  sequence.outlet.reset();
  if (handover != 0) exports_->release(handover);
  sequence.metrics.output_tokens = sequence.generated();
  sequence.listener->on_finish({reason, std::move(error), sequence.metrics});
}

}  // namespace nmc::engine
