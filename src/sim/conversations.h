// Conversations over nodes without any transfer between them: how many move, what that costs in prefill, how even the
// nodes are. The policy is the router's own (router/cliques.h); time, turns and sizes are drawn from a seed.
//
// A turn adds tokens to its conversation's context, and so does the answer. A node's cache never loses a live
// conversation, so a turn computes what it adds, and all of its context after a move. A conversation that has had its
// turns is replaced by another after one think time; or, with open arrivals, ends, and others come at random times.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "router/cliques.h"

namespace nmc::sim {

enum class LoadBy { kContext, kConversations };  // tokens of live contexts, or their number
enum class TurnCounts { kGeometric, kPareto };   // 1 + floor(Exp(mean - 1)), or heavy-tailed of index 1.5
enum class Arrivals { kClosed, kOpen };

struct ConversationOptions {
  std::uint64_t nodes = 8;
  std::uint64_t per_node = 8;  // conversations, on the mean
  router::CliqueOptions policy;
  bool reserve = true;  // false: a newcomer picks its node one think time before it weighs anything there
  LoadBy load_by = LoadBy::kContext;
  Arrivals arrivals = Arrivals::kClosed;
  TurnCounts turn_counts = TurnCounts::kGeometric;
  double turns = 12;           // mean of a conversation, above 1
  double first_tokens = 4000;  // mean of its first prompt: log-normal, as what each turn adds
  double added_tokens = 400;
  double answer_tokens = 400;  // mean: exponential
  double sigma = 0.8;          // of the log-normals
  double think_s = 60;         // mean between a turn and the next: exponential
  std::uint64_t context_max = 128'000;
  std::uint64_t warmup_turns = 40'000;  // not counted
  std::uint64_t measured_turns = 180'000;
  std::uint64_t seed = 11;
};

struct ConversationResult {
  std::uint64_t turns = 0;
  std::uint64_t conversations = 0;        // that had one of those turns
  std::uint64_t moved_conversations = 0;  // that moved at one
  std::uint64_t moves = 0;
  std::uint64_t overloaded_turns = 0;  // whose node was overloaded
  std::uint64_t denied_moves = 0;      // of those, that found no node that had room
  double prefill_tokens = 0;           // without moves
  double extra_prefill_tokens = 0;     // by moves
  double peak = 0;                     // the largest load of a node by the mean of all, at any turn
};

// kInvalidArgument for options that mean nothing. Checks at each turn that the loads of the nodes add up to those of
// the conversations, and that no move overloads another node where the policy says so: failing that is our mistake, and
// ends the process. Time grows with the turns, memory with the conversations.
Result<ConversationResult> simulate_conversations(const ConversationOptions& options);

}  // namespace nmc::sim
