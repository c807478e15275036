#include "sim/conversations.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace nmc::sim {
namespace {

constexpr double kPi = 3.141592653589793;
constexpr std::uint64_t kTurnsMax = 100'000;  // of a conversation
constexpr double kParetoIndex = 1.5;

// Draws in order. Each conversation has its own, so that with another policy the same ones come at the same times.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : rng_(keyed_random(seed, stream, 0)) {}

  double uniform(double until) { return rng_.unit() * until; }
  double exponential(double mean) { return -mean * std::log1p(-rng_.unit()); }
  double log_normal_tokens(double mean, double sigma) {
    return std::max(1.0, std::floor(std::exp(std::log(mean) - sigma * sigma / 2 + sigma * normal())));
  }
  double exponential_tokens(double mean) { return std::max(1.0, std::floor(exponential(mean))); }
  double pareto(double index) { return std::pow(1 - rng_.unit(), -1 / index); }

 private:
  double normal() {  // Box and Muller's
    const double radius = std::sqrt(-2 * std::log1p(-rng_.unit()));
    return radius * std::cos(2 * kPi * rng_.unit());
  }
  Rng rng_;
};

struct Conversation {
  Draws draws;
  double at = 0;            // when its next turn comes
  std::uint64_t order = 0;  // of equal times the earlier made one first
  std::size_t node = 0;
  bool has_node = false;
  bool fresh = true;
  bool counted = false, moved = false;
  double context = 0;
  std::uint64_t turns_left = 0;
};
struct Later {
  bool operator()(const Conversation& a, const Conversation& b) const {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
};

class Simulation {
 public:
  explicit Simulation(const ConversationOptions& options)
      : options_(options), policy_(options.policy), ties_(options.seed, 0), nodes_(options.nodes) {
    const double population = static_cast<double>(options.nodes * options.per_node);
    const double life = options.turns * options.think_s;
    arrival_mean_s_ = life / population;
    const bool open = options.arrivals == Arrivals::kOpen;
    if (open) arrive(0);
    for (std::uint64_t i = 0; !open && i < options.nodes * options.per_node; ++i)
      add(0, [&](Draws& draws) { return draws.uniform(life); });
  }

  ConversationResult run() {
    const std::uint64_t turns = options_.warmup_turns + options_.measured_turns;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      Conversation next = queue_.top();
      queue_.pop();
      take_turn(next, turn >= options_.warmup_turns);
    }
    return result_;
  }

 private:
  bool by_context() const { return options_.load_by == LoadBy::kContext; }
  double weight(const Conversation& one) const { return by_context() ? one.context : 1; }

  // The next of open arrivals.
  void arrive(double now) {
    add(now, [&](Draws& draws) { return draws.exponential(arrival_mean_s_); });
  }
  template <class Delay>
  void add(double now, Delay delay) {
    Conversation made{.draws = Draws(options_.seed, ++made_), .order = order_++};
    made.at = now + delay(made.draws);
    made.turns_left = draw_turns(made.draws);
    if (!options_.reserve) choose_first_node(made);
    queue_.push(made);
  }
  std::uint64_t draw_turns(Draws& draws) const {
    const double drawn =
        options_.turn_counts == TurnCounts::kGeometric
            ? 1 + std::floor(draws.exponential(options_.turns - 1))
            : std::floor(options_.turns * (kParetoIndex - 1) / kParetoIndex * draws.pareto(kParetoIndex));
    return static_cast<std::uint64_t>(std::clamp(drawn, 1.0, static_cast<double>(kTurnsMax)));
  }
  // The least loaded, at random among equals.
  void choose_first_node(Conversation& one) {
    for (std::size_t i = 0; i < options_.nodes; ++i) nodes_.set_tie(i, ties_.uniform(1));
    one.node = policy_.choose(nodes_.loads(), std::nullopt, weight(one)).node;
    one.has_node = true;
    for (std::size_t i = 0; i < options_.nodes; ++i) nodes_.set_tie(i, 0);
  }

  void take_turn(Conversation& one, bool measured) {
    const double now = one.at;
    double added = 0, extra = 0;
    if (one.fresh) {
      one.fresh = false;
      if (options_.arrivals == Arrivals::kOpen) arrive(now);
      if (!one.has_node) choose_first_node(one);
      added = one.draws.log_normal_tokens(options_.first_tokens, options_.sigma);
      if (!by_context()) nodes_.add(one.node, 1);
      ++live_;
    } else {
      added = one.draws.log_normal_tokens(options_.added_tokens, options_.sigma);
      if (move_if_overloaded(one, measured)) extra = one.context;
    }
    if (measured) count(one, added, extra);
    const double answer = one.draws.exponential_tokens(options_.answer_tokens);
    const double grown = std::min(static_cast<double>(options_.context_max), one.context + added + answer);
    contexts_ += grown - one.context;
    if (by_context()) nodes_.add(one.node, grown - one.context);
    one.context = grown;
    --one.turns_left;
    end_turn(one, now);
    check_loads();
  }

  bool move_if_overloaded(Conversation& one, bool measured) {
    const router::CliqueChoice choice = policy_.choose(nodes_.loads(), one.node, weight(one));
    if (measured) {
      result_.overloaded_turns += choice.overloaded ? 1 : 0;
      result_.moves += choice.moved ? 1 : 0;
      result_.denied_moves += choice.overloaded && !choice.moved ? 1 : 0;
    }
    if (!choice.moved) return false;
    nodes_.move(one.node, choice.node, weight(one));
    one.node = choice.node;
    const double limit = policy_.options().overload_factor * nodes_.total() / static_cast<double>(options_.nodes);
    NMC_ASSERT(!policy_.options().checks_destination || nodes_.loads()[one.node].load <= limit * (1 + 1e-12),
               "load={} limit={}", nodes_.loads()[one.node].load, limit);
    return true;
  }

  void count(Conversation& one, double added, double extra) {
    ++result_.turns;
    result_.conversations += std::exchange(one.counted, true) ? 0 : 1;
    if (extra > 0) result_.moved_conversations += std::exchange(one.moved, true) ? 0 : 1;
    result_.prefill_tokens += added;
    result_.extra_prefill_tokens += extra;
    if (nodes_.total() <= 0) return;
    const auto most = std::ranges::max_element(nodes_.loads(), {}, &router::NodeLoad::load);
    result_.peak = std::max(result_.peak, most->load * static_cast<double>(options_.nodes) / nodes_.total());
  }

  void end_turn(Conversation& one, double now) {
    if (one.turns_left > 0) {
      one.at = now + one.draws.exponential(options_.think_s);
      one.order = order_++;
      queue_.push(one);
      return;
    }
    nodes_.remove(one.node, weight(one));
    contexts_ -= one.context;
    --live_;
    if (options_.arrivals == Arrivals::kClosed)
      add(now, [&](Draws& draws) { return draws.exponential(options_.think_s); });
  }

  void check_loads() const {
    double sum = 0;
    for (const router::NodeLoad& node : nodes_.loads()) sum += node.load;
    const double expected = by_context() ? contexts_ : static_cast<double>(live_);
    // Whole numbers far below 2^53, so exact.
    NMC_ASSERT(sum == expected && nodes_.total() == expected, "nodes={} conversations={}", sum, expected);
  }

  const ConversationOptions options_;
  const router::CliquePolicy policy_;
  Draws ties_;
  router::NodeContexts nodes_;
  std::priority_queue<Conversation, std::vector<Conversation>, Later> queue_;
  double arrival_mean_s_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t made_ = 0;
  std::uint64_t live_ = 0;
  double contexts_ = 0;
  ConversationResult result_;
};

Result<void> check(const ConversationOptions& options) {
  if (options.nodes < 1 || options.per_node < 1)
    return invalid_argument("nodes and conversations: expected at least 1");
  if (!(options.turns > 1)) return invalid_argument("turns: expected a mean above 1, got {}", options.turns);
  for (const double positive : {options.first_tokens, options.added_tokens, options.answer_tokens, options.think_s}) {
    if (!(positive > 0)) return invalid_argument("tokens and think time: expected numbers above 0, got {}", positive);
  }
  if (!(options.sigma >= 0)) return invalid_argument("sigma: expected at least 0, got {}", options.sigma);
  if (!(options.policy.overload_factor > 1))
    return invalid_argument("overload factor: expected more than 1, got {}", options.policy.overload_factor);
  return {};
}

}  // namespace

Result<ConversationResult> simulate_conversations(const ConversationOptions& options) {
  NMC_RETURN_IF_ERROR(check(options));
  return Simulation(options).run();
}

}  // namespace nmc::sim
