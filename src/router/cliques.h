// Which node of several serves a conversation's next turn, where each node has the KV of its own conversations and none
// of the others'. A node with its workers is a clique: a conversation stays there, since anywhere else its whole
// context would have to be computed again.
//
//   new          the least loaded node
//   later turn   its node; but if that is overloaded, the least loaded one, where the conversation then stays
//
// Overloaded is a node above `overload_factor` times the mean of all and above `overload_floor`: a ratio alone fires
// for nothing when there is little to do. Nothing moves to a node that the conversation itself would put above the
// factor, so a huge one doesn't go back and forth.
//
// Loads are whatever the caller measures, in one unit for all nodes, the conversation's weight included: tokens of live
// contexts, or tokens to compute. What counts is when a newcomer begins to weigh: a caller that lets it weigh only once
// it has answered sends all newcomers of a moment to the same node. NodeContexts below counts it at placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nmc::router {

struct CliqueOptions {
  double overload_factor = 2.0;    // above 1; infinite: nothing ever moves
  double overload_floor = 0.0;     // in the unit of the loads
  bool checks_destination = true;  // false: moves even where that overloads the other node
};

struct NodeLoad {
  double load = 0;
  double tie = 0;  // of equal loads the node with the lower one is taken, then the first
};

struct CliqueChoice {
  std::size_t node = 0;
  bool overloaded = false;  // the conversation's node was; it stays there unless ...
  bool moved = false;       // ... `node` is another
};

// Stateless, so thread-safe.
class CliquePolicy {
 public:
  explicit CliquePolicy(const CliqueOptions& options) : options_(options) {}

  // `nodes` isn't empty; `home` is the conversation's node, or nothing for a new one; `weight` what it adds to the load
  // of a node it moves to.
  CliqueChoice choose(std::span<const NodeLoad> nodes, std::optional<std::size_t> home, double weight) const;

  const CliqueOptions& options() const { return options_; }

 private:
  CliqueOptions options_;
};

std::size_t least_loaded(std::span<const NodeLoad> nodes);

// Tokens of the live conversations of each node. Not thread-safe.
class NodeContexts {
 public:
  explicit NodeContexts(std::size_t nodes) : nodes_(nodes) {}

  std::span<const NodeLoad> loads() const { return nodes_; }
  void set_tie(std::size_t node, double tie) { nodes_[node].tie = tie; }
  double total() const { return total_; }

  void add(std::size_t node, double tokens) {
    nodes_[node].load += tokens;
    total_ += tokens;
  }
  void remove(std::size_t node, double tokens) { add(node, -tokens); }
  void move(std::size_t from, std::size_t to, double tokens) {
    nodes_[from].load -= tokens;
    nodes_[to].load += tokens;
  }

 private:
  std::vector<NodeLoad> nodes_;
  double total_ = 0;
};

}  // namespace nmc::router
