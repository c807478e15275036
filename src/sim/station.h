// A resource that many share: so many servers, and a queue of jobs before them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "sim/event_queue.h"
#include "sim/queue_series.h"

namespace nmc::sim {

enum class QueuePolicy {
  kFcfs,      // in the order of coming
  kSjf,       // the shortest service first
  kDeadline,  // the earliest deadline first; who would miss it even if served at once comes after all others
};
std::optional<QueuePolicy> queue_policy_of(std::string_view name);  // "fcfs", "sjf", "deadline"

// Not thread-safe; bound to one event queue, which outlives it. A service once begun goes on to its end or its
// withdrawal. Of equals the one that came first.
class Station {
 public:
  struct Job {
    SimNanos service = 0;
    SimNanos deadline = 0;      // by when the service should have ended; for kDeadline
    EventQueue::Action done{};  // called at the end of its service
  };
  using Ticket = std::uint64_t;

  struct Totals {
    std::uint64_t arrivals = 0, departures = 0, withdrawn = 0;
    SimNanos wait = 0;  // of all that were begun
    std::uint64_t begun = 0;
    SimNanos busy = 0;  // of all servers together
  };

  Station(EventQueue& events, std::uint32_t servers, QueuePolicy policy)
      : events_(&events), servers_(servers), policy_(policy) {}
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  Ticket submit(Job job);
  // Takes back a job that isn't done; the part of its service that it had, 0 to 1.
  double withdraw(Ticket ticket);

  std::size_t waiting() const { return waiting_.size() + late_.size(); }
  std::size_t in_service() const { return in_service_.size(); }
  const Totals& totals() const { return totals_; }
  const QueueSeries& waiting_over_time() const { return series_; }

  // Every job is somewhere: arrivals = departures + withdrawn + waiting + in service.
  void check_conserved() const;

 private:
  struct Waiting {
    Ticket ticket;
    SimNanos since;
    Job job;
  };
  struct InService {
    SimNanos since, service;
    EventQueue::Action done;
  };
  using Rank = std::pair<SimNanos, Ticket>;

  void begin_services();
  void end_service(Ticket ticket);
  Waiting take_next();
  void note_length() { series_.change(events_->now(), waiting()); }

  EventQueue* events_;
  std::uint32_t servers_;
  QueuePolicy policy_;
  std::map<Rank, Waiting> waiting_;
  std::map<Ticket, Waiting> late_;
  std::unordered_map<Ticket, Rank> ranks_;  // of what waits
  std::unordered_map<Ticket, InService> in_service_;
  Totals totals_;
  QueueSeries series_;
  Ticket tickets_ = 0;
};

}  // namespace nmc::sim
