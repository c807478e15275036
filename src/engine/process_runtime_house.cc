// The front's housekeeper: ends what is overdue, and renews the leases of what is still wanted.
#include <algorithm>

#include "engine/process_runtime.h"
#include "engine/process_runtime_state.h"
#include "engine/request_limits.h"

namespace nmc::engine {
namespace {

// A cancelled request ends when its worker says so, at most after this.
constexpr Nanos kCancelPatience = std::chrono::seconds(2);
constexpr Nanos kHousekeeping = std::chrono::milliseconds(500);  // between two looks when nothing is due

}  // namespace

void ProcessRuntime::keep_house() {
  for (;;) {
    std::vector<Ended> ended;
    const std::size_t blocks = store_.blocks_total();  // may ask a master, which must not hold others up
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      blocks_total_ = blocks;
      const Nanos now = options_.clock->now();
      ended = end_overdue(now);
      renew_handovers(now);
      dispatch_locked();
      if (ended.empty()) {
        schedule_.wait_until(mutex_, std::chrono::steady_clock::now() + next_look(now));
        if (stopping_) return;
      }
    }
    for (const Ended& one : ended) tell(one);
  }
}

std::vector<ProcessRuntime::Ended> ProcessRuntime::end_overdue(Nanos now) {
  std::vector<LivePtr> overdue;
  for (const auto& [id, live] : live_) overdue.push_back(live);
  std::vector<Ended> ended;
  for (const LivePtr& live : overdue) {
    const GenerateRequest& request = live->request;
    const bool waits = live->worker == kNoWorker;
    if (live->cancelled_at != Nanos{0} && (waits || now - live->cancelled_at >= kCancelPatience)) {
      ended.push_back(end_locked(live, FinishReason::kCancelled, std::nullopt));
    } else if (request.deadline && now >= *request.deadline) {
      ended.push_back(end_locked(live, FinishReason::kFailed, deadline_error(request, live->generated.size())));
    } else if (request.queue_deadline && live->admitted == Nanos{0} && now >= *request.queue_deadline) {
      ended.push_back(end_locked(live, FinishReason::kFailed, queue_deadline_error(request)));
    }
  }
  return ended;
}

// As long as the taker gives signs of life, however slow it is.
void ProcessRuntime::renew_handovers(Nanos now) {
  if (now - renewed_ < handover_lease_ / 3) return;
  renewed_ = now;
  for (const auto& [handover, live] : by_handover_) {
    if (!live->handed_over || live->producer == kNoWorker) continue;
    const bool waits = live->stage == Live::Stage::kToDecode;
    const bool taken =
        live->stage == Live::Stage::kDecode && now - workers_[live->consumer]->heard < handover_lease_ / 2;
    if (waits || taken) workers_[live->producer]->link->send(WorkerOp::kRenew, body_of(handover));
  }
}

Nanos ProcessRuntime::look_interval() const { return std::min<Nanos>(kHousekeeping, handover_lease_ / 3); }

// When something is to be done about it if nobody else does; never: the end of time.
Nanos ProcessRuntime::due_at(const Live& live) {
  Nanos at = Nanos::max();
  if (live.cancelled_at != Nanos{0}) at = std::min(at, live.cancelled_at + kCancelPatience);
  if (live.request.deadline) at = std::min(at, *live.request.deadline);
  if (live.request.queue_deadline && live.admitted == Nanos{0}) at = std::min(at, *live.request.queue_deadline);
  return at;
}

Nanos ProcessRuntime::next_look(Nanos now) const {
  Nanos at = now + look_interval();
  for (const auto& [id, live] : live_) at = std::min(at, due_at(*live));
  return std::max(at - now, Nanos{0});
}

}  // namespace nmc::engine
