#include "router/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"

namespace nmc::router {
namespace {

using engine::PlacementPolicy;
using engine::PlacementRequest;
using engine::WorkerLoad;

constexpr std::array<const char*, 4> kNames{"round-robin", "least-load", "prefix", "prefix+load"};

std::size_t load_tokens(const WorkerLoad& worker) { return worker.queued_tokens + worker.running_tokens; }
std::size_t assigned(const WorkerLoad& worker) { return worker.queued_requests + worker.running_requests; }

// The largest number of leading tokens that more than half of the candidates hold.
std::size_t common_match(std::span<const WorkerLoad> candidates) {
  std::vector<std::size_t> matched;
  matched.reserve(candidates.size());
  for (const WorkerLoad& worker : candidates) matched.push_back(worker.matched_tokens);
  const auto middle = matched.begin() + static_cast<std::ptrdiff_t>(matched.size() / 2);
  std::nth_element(matched.begin(), middle, matched.end(), std::greater<>());
  return *middle;
}

// What is equal by a policy's own measure: see the header.
struct Tie {
  std::size_t assigned;
  std::uint64_t last_turn;  // 0: never chosen
  auto operator<=>(const Tie&) const = default;
};

// A policy that picks the lowest rank. It remembers a turn for each name, so its memory is that of all names ever seen;
// they are few, since a restarted worker keeps its own.
class RankingPolicy : public PlacementPolicy {
 public:
  std::size_t choose(const PlacementRequest& request, std::span<const WorkerLoad> candidates) final {
    NMC_REQUIRE(!candidates.empty(), "nobody to choose from");
    const std::vector<Rank> ranks = rank(request, candidates);
    std::size_t best = 0;
    for (std::size_t i = 1; i < candidates.size(); ++i) {
      const auto order = ranks[i] <=> ranks[best];
      if (order < 0 || (order == 0 && tie(candidates[i]) < tie(candidates[best]))) best = i;
    }
    last_turns_[candidates[best].name] = ++turn_;
    return best;
  }

 protected:
  struct Rank {
    std::size_t first = 0, second = 0;
    auto operator<=>(const Rank&) const = default;
  };

  // One for each candidate.
  virtual std::vector<Rank> rank(const PlacementRequest& request, std::span<const WorkerLoad> candidates) const = 0;
  std::uint64_t last_turn(const WorkerLoad& worker) const {
    const auto known = last_turns_.find(worker.name);
    return known == last_turns_.end() ? 0 : known->second;
  }

 private:
  Tie tie(const WorkerLoad& worker) const { return {assigned(worker), last_turn(worker)}; }

  std::unordered_map<std::string, std::uint64_t> last_turns_;
  std::uint64_t turn_ = 0;
};

class RoundRobin final : public RankingPolicy {
 public:
  const char* name() const override { return kNames[0]; }

 private:
  // Not a position that moves on: with workers that come and go that would skip some and favour others.
  std::vector<Rank> rank(const PlacementRequest&, std::span<const WorkerLoad> candidates) const override {
    std::vector<Rank> ranks;
    for (const WorkerLoad& worker : candidates) ranks.push_back({last_turn(worker), 0});
    // Of those that were never chosen the first, though another may have fewer requests.
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].second = i;
    return ranks;
  }
};

class LeastLoad final : public RankingPolicy {
 public:
  const char* name() const override { return kNames[1]; }

 private:
  std::vector<Rank> rank(const PlacementRequest&, std::span<const WorkerLoad> candidates) const override {
    std::vector<Rank> ranks;
    for (const WorkerLoad& worker : candidates) ranks.push_back({load_tokens(worker), 0});
    return ranks;
  }
};

class LongestPrefix final : public RankingPolicy {
 public:
  const char* name() const override { return kNames[2]; }

 private:
  std::vector<Rank> rank(const PlacementRequest& request, std::span<const WorkerLoad> candidates) const override {
    std::vector<Rank> ranks;
    for (const WorkerLoad& worker : candidates) {
      const std::size_t matched = std::min(worker.matched_tokens, request.prompt_tokens);
      ranks.push_back({request.prompt_tokens - matched, load_tokens(worker)});
    }
    return ranks;
  }
};

class PrefixAndLoad final : public RankingPolicy {
 public:
  const char* name() const override { return kNames[3]; }

 private:
  std::vector<Rank> rank(const PlacementRequest& request, std::span<const WorkerLoad> candidates) const override {
    const std::size_t common = common_match(candidates);
    std::vector<Rank> ranks;
    for (const WorkerLoad& worker : candidates) {
      const std::size_t own = worker.matched_tokens > common ? worker.matched_tokens - common : 0;
      const std::size_t to_compute = request.prompt_tokens - std::min(own, request.prompt_tokens);
      const bool waits_for_blocks = worker.blocks_available < request.blocks_needed;
      ranks.push_back({waits_for_blocks ? 1u : 0u, to_compute + load_tokens(worker)});
    }
    return ranks;
  }
};

}  // namespace

std::span<const char* const> policy_names() { return kNames; }

Result<std::unique_ptr<PlacementPolicy>> create_policy(std::string_view name) {
  if (name == kNames[0]) return std::make_unique<RoundRobin>();
  if (name == kNames[1]) return std::make_unique<LeastLoad>();
  if (name == kNames[2]) return std::make_unique<LongestPrefix>();
  if (name == kNames[3]) return std::make_unique<PrefixAndLoad>();
  return invalid_argument("placement policy \"{}\" isn't known; expected one of {}", name, fmt::join(kNames, ", "));
}

}  // namespace nmc::router
