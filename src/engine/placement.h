// How a runtime chooses the worker for a request. The runtime gathers what is known of each candidate, a policy picks
// one. The policies are in router/policies.h; an experiment or a simulator brings its own or the same ones.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace nmc::engine {

// One candidate, as of now. All candidates of one choice have the same role, so their numbers are of the same kind.
struct WorkerLoad {
  std::string name;                  // stays the same when the worker is restarted; no two candidates share it
  std::size_t queued_requests = 0;   // handed to it, not started
  std::size_t queued_tokens = 0;     // prompt tokens of those
  std::size_t running_requests = 0;  // started
  std::size_t running_tokens = 0;    // of those: still to compute where it prefills, in their context where it decodes
  std::size_t matched_tokens = 0;    // leading tokens of this prompt whose KV it is known to hold
  std::size_t blocks_available = 0;  // blocks the request could have there: free, evictable, or matched already
};

struct PlacementRequest {
  std::size_t prompt_tokens = 0;
  std::size_t blocks_needed = 0;  // for all tokens of it, matched or not
};

// Not thread-safe: a runtime calls it under its own lock, so it must not block. A choice counts as made: what a policy
// remembers of earlier ones, it remembers of each call.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  virtual const char* name() const = 0;  // as in settings and metrics

  // Index of the chosen candidate. `candidates` isn't empty; it may have other members each time, since workers stop
  // and come back.
  virtual std::size_t choose(const PlacementRequest& request, std::span<const WorkerLoad> candidates) = 0;
};

}  // namespace nmc::engine
