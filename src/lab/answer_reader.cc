#include "lab/answer_reader.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <memory>
#include <system_error>

namespace nmc::lab {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kErrorBodyBytesMax = 300;
constexpr std::uint64_t kWakeTag = std::numeric_limits<std::uint64_t>::max();
constexpr int kLookMs = 20;  // how late a timeout may be noticed

std::int64_t thread_cpu_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * std::int64_t{1'000'000'000} + used.tv_nsec;
}

bool is_rejection(int status) { return status == 429 || status == 503; }

}  // namespace

Result<std::unique_ptr<AnswerReader>> AnswerReader::create(Nanos start, Nanos timeout, OnEnd on_end) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Failure(os_error("epoll_create1", "answers"));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeTag}};
  if (!wake || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return Failure(os_error("eventfd", "answers"));
  return std::unique_ptr<AnswerReader>(
      new AnswerReader(std::move(epoll), std::move(wake), start, timeout, std::move(on_end)));
}

AnswerReader::AnswerReader(UniqueFd epoll, UniqueFd wake, Nanos start, Nanos timeout, OnEnd on_end)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      start_(start),
      timeout_(timeout),
      on_end_(std::move(on_end)),
      buffer_(kReadBytes),
      thread_([this] { run(); }) {}

AnswerReader::~AnswerReader() {
  ended_.store(true);
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
  accept_new();
  while (!open_.empty()) finish(open_.begin(), LoadOutcome::kUnfinished, "the run was interrupted", now());
}

void AnswerReader::add(ExchangePtr exchange) {
  {
    MutexLock lock(mutex_);
    new_.push_back(std::move(exchange));
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void AnswerReader::run() {
  std::array<epoll_event, 256> events;
  while (!ended_.load()) {
    const int count = retry_on_eintr([&] { return ::epoll_wait(epoll_.get(), events.data(), events.size(), kLookMs); });
    // First all bytes get their time, then they are looked at: so nobody's answer is late for another's parsing.
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWakeTag) continue;
      if (const auto it = open_.find(events[i].data.u64); it != open_.end()) receive(it->second);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWakeTag)
        accept_new();
      else
        look_at(events[i].data.u64);
    }
    end_late_ones();
    cpu_ns_.store(thread_cpu_ns(), std::memory_order_relaxed);
  }
}

void AnswerReader::accept_new() {
  std::uint64_t ignored = 0;
  (void)!::read(wake_.get(), &ignored, sizeof ignored);
  std::vector<ExchangePtr> added;
  {
    MutexLock lock(mutex_);
    added.swap(new_);
  }
  for (ExchangePtr& exchange : added) {
    const std::size_t index = exchange->record.index;
    deadlines_.insert({exchange->record.planned + timeout_, index});
    Open& open = open_[index];
    open.exchange = std::move(exchange);
    open.watches_output = open.exchange->written < open.exchange->bytes.size();
    watch(open, true);
  }
}

void AnswerReader::watch(Open& open, bool is_new) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = open.exchange->record.index}};
  if (open.watches_output) event.events |= EPOLLOUT;
  ::epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, open.exchange->stream->fd(), &event);
}

void AnswerReader::receive(Open& open) {
  LoadExchange& exchange = *open.exchange;
  if (open.watches_output) {
    // A server may answer and close before it has read all, so what it says is read in any case.
    if (!exchange.write(start_) || exchange.written == exchange.bytes.size()) {
      open.watches_output = false;
      watch(open, false);
    }
  }
  for (;;) {
    const iovec piece{buffer_.data(), buffer_.size()};
    const net::StreamIo io = exchange.stream->read({&piece, 1});
    if (io.bytes > 0) {
      open.pieces.emplace_back(std::string(buffer_.data(), io.bytes), now());
      if (io.bytes == buffer_.size() || exchange.stream->has_pending()) continue;
      return;
    }
    open.closed = !io.would_block() && io.error_number != EINTR;
    return;
  }
}

void AnswerReader::look_at(std::size_t index) {
  const auto it = open_.find(index);
  if (it == open_.end()) return;
  const Nanos at = it->second.pieces.empty() ? now() : it->second.pieces.back().second;
  const Result<bool> done = parse(it->second);
  const LoadExchange& exchange = *it->second.exchange;
  if (exchange.http.has_header() && exchange.http.status() != 200 && (!done || *done)) {
    const int status = exchange.http.status();
    return finish(it, is_rejection(status) ? LoadOutcome::kRejected : LoadOutcome::kError,
                  fmt::format("status {}: {}", status, exchange.error_body), at);
  }
  if (!done) return finish(it, LoadOutcome::kError, done.error().message, at);
  if (*done) return finish(it, LoadOutcome::kOk, "", at);
}

// True: the answer is whole.
Result<bool> AnswerReader::parse(Open& open) {
  LoadExchange& exchange = *open.exchange;
  const auto take = [&](Nanos at) -> Result<void> {
    const std::string body = exchange.http.take_body();
    if (!exchange.http.has_header() || body.empty()) return {};
    if (exchange.http.status() == 200) return exchange.answer.add(body, at);
    exchange.error_body +=
        body.substr(0, kErrorBodyBytesMax - std::min(kErrorBodyBytesMax, exchange.error_body.size()));
    return {};
  };
  for (const auto& [bytes, at] : std::exchange(open.pieces, {})) {
    NMC_RETURN_IF_ERROR(exchange.http.add(bytes));
    NMC_RETURN_IF_ERROR(take(at));
  }
  if (open.closed) {
    // What the stream's own end says is more to the point than that of the connection.
    const Result<void> closed = exchange.http.close();
    NMC_RETURN_IF_ERROR(take(now()));
    if (!closed && exchange.http.has_header() && exchange.http.status() == 200)
      NMC_RETURN_IF_ERROR(exchange.answer.end());
    NMC_RETURN_IF_ERROR(closed);
  }
  if (!exchange.http.is_done()) return false;
  if (exchange.http.status() == 200) NMC_RETURN_IF_ERROR(exchange.answer.end());
  return true;
}

void AnswerReader::finish(OpenMap::iterator it, LoadOutcome outcome, std::string reason, Nanos at) {
  ExchangePtr exchange = std::move(it->second.exchange);
  const bool closed = it->second.closed;
  open_.erase(it);
  LoadRecord& record = exchange->record;
  deadlines_.erase({record.planned + timeout_, record.index});
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, exchange->stream->fd(), nullptr);
  if (closed || !exchange->http.is_done() || !exchange->http.keeps_alive() ||
      exchange->written < exchange->bytes.size())
    exchange->stream.reset();
  if (exchange->http.has_header()) record.status = exchange->http.status();
  record.token_times = exchange->answer.token_times();
  record.usage = exchange->answer.usage();
  record.finish_reason = exchange->answer.finish_reason();
  exchange->end(outcome, std::move(reason), at);
  on_end_(std::move(exchange));
}

void AnswerReader::end_late_ones() {
  const Nanos at = now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= at) {
    const auto it = open_.find(deadlines_.begin()->second);
    const bool began = it->second.exchange->http.has_header();
    finish(it, LoadOutcome::kTimeout,
           fmt::format("no {} within {:g} s", began ? "whole answer" : "answer", to_ms(timeout_) / 1e3), at);
  }
}

}  // namespace nmc::lab
