#include "sim/route_replay.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "router/policies.h"
#include "sim/block_cache.h"

namespace nmc::sim {
namespace {

constexpr std::array kRouters = {"one-pool",     "random", "round-robin", "least-load", "prefix",
                                 "least-tokens", "hash",   "cliques",     "prefix+load"};
constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

// The conversation of each request, by session or by shared blocks.
class Conversations {
 public:
  explicit Conversations(const Trace& trace) : trace_(trace), owner_(trace.blocks_unique(), kNobody) {}

  std::uint32_t of(const TraceRequest& request) {
    const auto all = trace_.blocks_of(request);
    const auto blocks = all.subspan(std::min<std::size_t>(1, all.size()));
    std::uint32_t found = kNobody;
    if (request.session >= 0) {
      found = sessions_.try_emplace(request.session, count_).first->second;
    } else {
      for (auto it = blocks.rbegin(); it != blocks.rend() && found == kNobody; ++it) found = owner_[*it];
      if (found == kNobody) found = count_;
    }
    if (found == count_) ++count_;
    for (const std::uint32_t block : blocks) {
      if (owner_[block] == kNobody) owner_[block] = found;
    }
    return found;
  }
  std::uint32_t count() const { return count_; }

 private:
  const Trace& trace_;
  std::vector<std::uint32_t> owner_;  // by block
  std::unordered_map<std::int64_t, std::uint32_t> sessions_;
  std::uint32_t count_ = 0;
};

// Uncached tokens sent to each node lately, and ever.
class SentTokens {
 public:
  SentTokens(std::size_t nodes, Nanos window)
      : window_us_(std::chrono::duration_cast<std::chrono::microseconds>(window).count()), nodes_(nodes) {}

  void forget_before(std::int64_t now_us) {
    while (!recent_.empty() && recent_.front().at_us < now_us - window_us_) {
      nodes_[recent_.front().node].load -= recent_.front().tokens;
      recent_.pop_front();
    }
  }
  void add(std::int64_t now_us, std::size_t node, double tokens) {
    nodes_[node].load += tokens;
    nodes_[node].tie += tokens;  // of equally loaded ones the one that was sent the least of all
    recent_.push_back({now_us, node, tokens});
  }
  std::span<const router::NodeLoad> loads() const { return nodes_; }
  double most() const { return std::ranges::max_element(nodes_, {}, &router::NodeLoad::tie)->tie; }

 private:
  struct Entry {
    std::int64_t at_us;
    std::size_t node;
    double tokens;
  };
  const std::int64_t window_us_;
  std::vector<router::NodeLoad> nodes_;
  std::deque<Entry> recent_;
};

class Replay {
 public:
  Replay(const Trace& trace, std::string_view router, const ReplayOptions& options)
      : trace_(trace),
        router_(router),
        options_(options),
        cliques_(options.policy),
        rng_(options.seed),
        conversations_(trace),
        sent_(options.nodes, options.window) {}

  Result<void> prepare() {
    for (std::uint64_t i = 0; i < options_.nodes; ++i) {
      NMC_ASSIGN_OR_RETURN(BlockCache cache, BlockCache::create("lru", options_.capacity_blocks, trace_));
      caches_.push_back(std::move(cache));
    }
    if (router_ == "prefix+load") {
      NMC_ASSIGN_OR_RETURN(workers_, router::create_policy(router_));
      loads_.resize(options_.nodes);
      for (std::size_t i = 0; i < loads_.size(); ++i) loads_[i].name = std::to_string(i);
    }
    return {};
  }

  ReplayResult run() {
    for (const TraceRequest& request : trace_.requests()) serve(request);
    result_.conversations = conversations_.count();
    result_.busiest_tokens = static_cast<std::uint64_t>(sent_.most());
    return result_;
  }

 private:
  void serve(const TraceRequest& request) {
    sent_.forget_before(request.arrival_us);
    const std::uint32_t conversation = conversations_.of(request);
    if (conversation >= homes_.size()) homes_.resize(conversation + std::size_t{1});
    const std::size_t node = choose(request, conversation);
    std::optional<std::size_t>& home = homes_[conversation];
    result_.moves += home && *home != node ? 1 : 0;
    home = node;
    const std::uint64_t uncached = uncached_at(node, request);
    ++result_.requests;
    result_.blocks += request.block_count;
    result_.hit_blocks += hits_at(node, request);
    result_.input_tokens += request.input_tokens;
    result_.uncached_tokens += uncached;
    sent_.add(request.arrival_us, node, static_cast<double>(uncached));
    std::uint32_t position = 0;
    for (const std::uint32_t block : trace_.blocks_of(request))
      caches_[node].use(block, {.key = trace_.key_of(block), .position = position++});
  }

  std::uint64_t hits_at(std::size_t node, const TraceRequest& request) const {
    const auto blocks = trace_.blocks_of(request);
    std::uint64_t hits = 0;
    while (hits < blocks.size() && caches_[node].has(blocks[hits])) ++hits;
    return hits;
  }
  std::uint64_t uncached_at(std::size_t node, const TraceRequest& request) const {
    const std::uint64_t cached = hits_at(node, request) * trace_.block_tokens();
    return request.input_tokens - std::min<std::uint64_t>(cached, request.input_tokens);
  }
  template <class Cost>
  std::size_t cheapest(Cost cost) const {
    std::size_t best = 0;
    auto least = cost(std::size_t{0});
    for (std::size_t i = 1; i < options_.nodes; ++i) {
      const auto here = cost(i);
      if (here < least) {
        least = here;
        best = i;
      }
    }
    return best;
  }

  std::size_t choose(const TraceRequest& request, std::uint32_t conversation) {
    const auto loads = sent_.loads();
    if (router_ == "random") return rng_.below(options_.nodes);
    if (router_ == "round-robin") return result_.requests % options_.nodes;
    if (router_ == "least-load") return router::least_loaded(loads);
    if (router_ == "hash") return (std::uint64_t{conversation} * 2654435761u >> 7) % options_.nodes;
    if (router_ == "prefix") {
      return cheapest(
          [&](std::size_t i) { return std::pair(-static_cast<double>(hits_at(i, request)), loads[i].load); });
    }
    if (router_ == "least-tokens")
      return cheapest([&](std::size_t i) { return loads[i].load + static_cast<double>(uncached_at(i, request)); });
    if (router_ == "prefix+load") return choose_worker(request);
    const router::CliqueChoice choice = cliques_.choose(loads, homes_[conversation], request.input_tokens);
    result_.overloaded += choice.overloaded ? 1 : 0;
    return choice.node;
  }
  std::size_t choose_worker(const TraceRequest& request) {
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      loads_[i].queued_tokens = static_cast<std::size_t>(sent_.loads()[i].load);
      loads_[i].matched_tokens = request.input_tokens - uncached_at(i, request);
      loads_[i].blocks_available = options_.capacity_blocks;
    }
    return workers_->choose({.prompt_tokens = request.input_tokens, .blocks_needed = request.block_count}, loads_);
  }

  const Trace& trace_;
  const std::string router_;
  const ReplayOptions options_;
  const router::CliquePolicy cliques_;
  Rng rng_;
  Conversations conversations_;
  SentTokens sent_;
  std::vector<BlockCache> caches_;
  std::unique_ptr<engine::PlacementPolicy> workers_;
  std::vector<engine::WorkerLoad> loads_;
  std::vector<std::optional<std::size_t>> homes_;  // by conversation
  ReplayResult result_;
};

}  // namespace

std::span<const char* const> replay_routers() { return kRouters; }

Result<ReplayResult> replay_routed(const Trace& trace, std::string_view router, const ReplayOptions& options) {
  if (std::ranges::find(kRouters, router) == kRouters.end())
    return invalid_argument("router \"{}\": expected one of {}", router, fmt::join(kRouters, ", "));
  if (options.nodes < 1) return invalid_argument("nodes: expected at least 1");
  ReplayOptions used = options;
  if (router == "one-pool") {
    used.nodes = 1;
    const bool bounded = options.capacity_blocks <= kUnbounded / options.nodes;
    used.capacity_blocks = bounded ? options.capacity_blocks * options.nodes : kUnbounded;
  }
  Replay replay(trace, router == "one-pool" ? "round-robin" : router, used);
  NMC_RETURN_IF_ERROR(replay.prepare());
  ReplayResult result = replay.run();
  if (router == "one-pool") result.busiest_tokens = result.uncached_tokens / options.nodes;  // nobody is busier
  return result;
}

}  // namespace nmc::sim
