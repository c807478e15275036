#include "engine/worker_link.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/log.h"

namespace nmc::engine {
namespace {

constexpr Nanos kConnectDeadline = std::chrono::seconds(2);
constexpr auto kRetryInterval = std::chrono::milliseconds(20);  // it takes a worker longer to start

// Names a process for good, as its number doesn't.
UniqueFd open_process(std::int64_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

}  // namespace

WorkerLink::WorkerLink(WorkerLinkOptions options, WorkerLinkHooks hooks)
    : options_(std::move(options)), hooks_(std::move(hooks)) {}

WorkerLink::~WorkerLink() { stop(); }

void WorkerLink::start() {
  thread_ = std::thread([this] { run(); });
}

void WorkerLink::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (events_ != nullptr) events_->interrupt();
    if (commander_ != nullptr) commander_->interrupt();
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkerLink::send(WorkerOp op, std::vector<std::byte> body, std::uint64_t ticket) {
  MutexLock lock(mutex_);
  if (!up_) return;
  commands_.push_back({op, std::move(body), ticket});
  wake_.notify_all();
}

Result<std::unique_ptr<net::Channel>> WorkerLink::connect() const {
  return net::Channel::connect(
      options_.worker.address,
      {.token = options_.token, .connect_deadline = kConnectDeadline, .progress_deadline = options_.deadline});
}

Result<WorkerHello> WorkerLink::greet(net::Channel& channel) const {
  net::BodyWriter body;
  put_front_hello(body, options_.hello);
  NMC_ASSIGN_OR_RETURN(const net::Channel::Reply reply,
                       channel.call({.op = static_cast<std::uint16_t>(WorkerOp::kHello), .body = body.bytes()}));
  net::BodyReader reader = reply.reader();
  WorkerHello hello = get_worker_hello(reader);
  NMC_RETURN_IF_ERROR(reader.finish());
  if (hello.role != options_.worker.role)
    return invalid_argument("worker {} at {}: it is for {}, expected one for {}", hello.name,
                            options_.worker.address.to_string(), hello.role, options_.worker.role);
  return hello;
}

void WorkerLink::run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    run_once();
    wait_before_next_try();
  }
}

void WorkerLink::wait_before_next_try() {
  MutexLock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + kRetryInterval;
  while (!stopping_ && wake_.wait_until(mutex_, until)) {
  }
}

// It may be starting, or getting rid of an earlier front's work: nothing to speak of.
void WorkerLink::not_up(const Error& why) {
  if (why.code == ErrorCode::kPermissionDenied || why.code == ErrorCode::kVersionMismatch ||
      why.code == ErrorCode::kInvalidArgument) {
    hooks_.on_refused(why);
  }
}

// One life of the worker, as far as it is seen from here.
void WorkerLink::run_once() {
  auto commander = connect();
  if (!commander) return not_up(commander.error());
  const auto hello = greet(**commander);
  if (!hello) return not_up(hello.error());
  const UniqueFd process = options_.worker.local ? open_process(hello->pid) : UniqueFd();
  auto events = connect();
  if (!events) return;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    commands_.clear();
    refused_.clear();
    up_ = true;
    events_ = events->get();
    commander_ = commander->get();
  }
  hooks_.on_up(*hello);
  std::thread sender([this, channel = commander->get()] { command_loop(*channel); });
  const Error why = hear(**events, hello->session);
  bool stopping;
  {
    MutexLock lock(mutex_);
    up_ = false;
    stopping = stopping_;
    (*commander)->interrupt();
    wake_.notify_all();
  }
  sender.join();
  {
    MutexLock lock(mutex_);
    events_ = commander_ = nullptr;
  }
  // A worker that stands still would go on with its work, and with what it holds, whenever it is let.
  if (process && !stopping) ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  if (!stopping) hooks_.on_down(why);
}

Error WorkerLink::hear(net::Channel& channel, std::uint64_t session) {
  net::BodyWriter asked;
  asked.put_u64(session);
  for (;;) {
    auto reply = channel.call({.op = static_cast<std::uint16_t>(WorkerOp::kEvents), .body = asked.bytes()});
    if (!reply) return std::move(reply).error();
    net::BodyReader reader = reply->reader();
    const WorkerFigures figures = get_figures(reader);
    const std::uint32_t count = reader.get_count("events", 1);
    std::vector<WorkerEvent> events;
    for (std::uint32_t i = 0; i < count; ++i) {
      auto event = get_event(reader);
      if (!event) return Error{ErrorCode::kCorrupt, "worker: an event of no known kind"};
      events.push_back(*std::move(event));
    }
    if (auto whole = reader.finish(); !whole) return std::move(whole).error();
    hooks_.on_figures(figures);
    for (const WorkerEvent& event : events) hooks_.on_event(event);
    std::deque<WorkerEvent> refused;
    {
      MutexLock lock(mutex_);
      refused.swap(refused_);
      if (!up_) return Error{ErrorCode::kUnavailable, "the connection by which it takes commands is lost"};
    }
    for (const WorkerEvent& event : refused) hooks_.on_event(event);
  }
}

void WorkerLink::command_loop(net::Channel& channel) {
  for (;;) {
    Command command;
    {
      MutexLock lock(mutex_);
      while (up_ && !stopping_ && commands_.empty()) wake_.wait(mutex_);
      if (!up_ || stopping_) return;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    const auto reply = channel.call({.op = static_cast<std::uint16_t>(command.op), .body = command.body});
    if (reply) continue;
    MutexLock lock(mutex_);
    if (!channel.usable()) {
      up_ = false;
      if (events_ != nullptr) events_->interrupt();
      return;
    }
    log_warning("worker {}: {}", options_.worker.name, reply.error().message);
    if (command.ticket != 0)
      refused_.push_back(event::Finished{command.ticket, FinishReason::kFailed, reply.error(), {}});
  }
}

}  // namespace nmc::engine
