#include "sim/station.h"

#include "base/check.h"

namespace nmc::sim {

std::optional<QueuePolicy> queue_policy_of(std::string_view name) {
  if (name == "fcfs") return QueuePolicy::kFcfs;
  if (name == "sjf") return QueuePolicy::kSjf;
  if (name == "deadline") return QueuePolicy::kDeadline;
  return std::nullopt;
}

Station::Ticket Station::submit(Job job) {
  NMC_REQUIRE(job.service >= 0, "service={}", job.service);
  const Ticket ticket = tickets_++;
  const SimNanos order = policy_ == QueuePolicy::kFcfs ? 0 : policy_ == QueuePolicy::kSjf ? job.service : job.deadline;
  ++totals_.arrivals;
  const Rank rank{order, ticket};
  ranks_.emplace(ticket, rank);
  waiting_.emplace(rank, Waiting{ticket, events_->now(), std::move(job)});
  begin_services();
  note_length();
  return ticket;
}

Station::Waiting Station::take_next() {
  while (policy_ == QueuePolicy::kDeadline && !waiting_.empty()) {
    const auto first = waiting_.begin();
    if (events_->now() + first->second.job.service <= first->second.job.deadline) break;
    late_.emplace(first->second.ticket, std::move(first->second));
    waiting_.erase(first);
  }
  Waiting next;
  if (waiting_.empty()) {
    next = std::move(late_.begin()->second);
    late_.erase(late_.begin());
  } else {
    next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  ranks_.erase(next.ticket);
  return next;
}

void Station::begin_services() {
  while (in_service_.size() < servers_ && waiting() > 0) {
    Waiting next = take_next();
    ++totals_.begun;
    totals_.wait += events_->now() - next.since;
    in_service_.emplace(next.ticket, InService{events_->now(), next.job.service, std::move(next.job.done)});
    events_->after(next.job.service, [this, ticket = next.ticket] { end_service(ticket); });
  }
}

void Station::end_service(Ticket ticket) {
  const auto served = in_service_.find(ticket);
  if (served == in_service_.end()) return;  // was withdrawn
  EventQueue::Action done = std::move(served->second.done);
  totals_.busy += served->second.service;
  in_service_.erase(served);
  ++totals_.departures;
  begin_services();
  note_length();
  if (done) done();
}

double Station::withdraw(Ticket ticket) {
  ++totals_.withdrawn;
  if (const auto served = in_service_.find(ticket); served != in_service_.end()) {
    const SimNanos had = events_->now() - served->second.since;
    const double part =
        served->second.service == 0 ? 0 : static_cast<double>(had) / static_cast<double>(served->second.service);
    totals_.busy += had;
    in_service_.erase(served);
    begin_services();
    note_length();
    return part;
  }
  const auto known = ranks_.find(ticket);
  NMC_REQUIRE(known != ranks_.end(), "ticket={}", ticket);
  if (waiting_.erase(known->second) == 0) late_.erase(ticket);
  ranks_.erase(known);
  note_length();
  return 0;
}

void Station::check_conserved() const {
  NMC_ASSERT(totals_.arrivals == totals_.departures + totals_.withdrawn + waiting() + in_service(),
             "arrivals={} departures={} withdrawn={} waiting={} in_service={}", totals_.arrivals, totals_.departures,
             totals_.withdrawn, waiting(), in_service());
}

}  // namespace nmc::sim
