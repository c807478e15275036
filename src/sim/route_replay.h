// A trace over several nodes, each with a cache of its own, by one router: how much of the prompts is there already,
// and how even the nodes are. Rules:
//
//   - requests in the order of the trace, without time: what a request computes the next finds; hits as in instant.h;
//   - the load of a node is the tokens of the prompts it was sent in the last 60 s that weren't cached there;
//   - a conversation is a session of the trace where it says so, else a chain of requests that share a block beyond the
//     first, which all prompts may share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "router/cliques.h"
#include "sim/trace.h"

namespace nmc::sim {

// random, round-robin, least-load; prefix: the longest cached beginning, of equal ones the least loaded; least-tokens:
// the fewest of load and what isn't cached of this prompt; hash: of the conversation; cliques: the router's, with the
// tokens of the prompt as weight; prefix+load: the router's policy for workers; one-pool: all nodes' memory as one,
// which is what transfers for nothing would give.
std::span<const char* const> replay_routers();

struct ReplayOptions {
  std::uint64_t nodes = 10;
  std::uint64_t capacity_blocks = 5859;  // of a node: 3 M tokens in blocks of 512
  router::CliqueOptions policy;
  Nanos window = std::chrono::seconds(60);
  std::uint64_t seed = 11;  // of "random"
};

struct ReplayResult {
  std::uint64_t requests = 0;
  std::uint64_t conversations = 0;
  std::uint64_t blocks = 0, hit_blocks = 0;
  std::uint64_t input_tokens = 0, uncached_tokens = 0;
  std::uint64_t moves = 0;           // requests that went to another node than their conversation's last
  std::uint64_t overloaded = 0;      // cliques: whose node was overloaded
  std::uint64_t busiest_tokens = 0;  // uncached, of the node with the most

  double imbalance(std::uint64_t nodes) const {
    return uncached_tokens == 0 ? 1.0
                                : static_cast<double>(busiest_tokens) * static_cast<double>(nodes) /
                                      static_cast<double>(uncached_tokens);
  }
};

// kInvalidArgument for a router that isn't one, with the names, or no nodes.
Result<ReplayResult> replay_routed(const Trace& trace, std::string_view router, const ReplayOptions& options);

}  // namespace nmc::sim
