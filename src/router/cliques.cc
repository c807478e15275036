#include "router/cliques.h"

#include "base/check.h"

namespace nmc::router {

std::size_t least_loaded(std::span<const NodeLoad> nodes) {
  NMC_REQUIRE(!nodes.empty(), "no nodes");
  std::size_t least = 0;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const bool lower =
        nodes[i].load != nodes[least].load ? nodes[i].load < nodes[least].load : nodes[i].tie < nodes[least].tie;
    if (lower) least = i;
  }
  return least;
}

CliqueChoice CliquePolicy::choose(std::span<const NodeLoad> nodes, std::optional<std::size_t> home,
                                  double weight) const {
  if (!home) return {.node = least_loaded(nodes)};
  NMC_REQUIRE(*home < nodes.size(), "home={} nodes={}", *home, nodes.size());
  double total = 0;
  for (const NodeLoad& node : nodes) total += node.load;
  const double limit = options_.overload_factor * (total / static_cast<double>(nodes.size()));
  const double load = nodes[*home].load;
  if (!(load > limit && load > options_.overload_floor)) return {.node = *home};
  const std::size_t destination = least_loaded(nodes);
  const bool fits = !options_.checks_destination || nodes[destination].load + weight <= limit;
  if (destination == *home || !fits) return {.node = *home, .overloaded = true};
  return {.node = destination, .overloaded = true, .moved = true};
}

}  // namespace nmc::router
