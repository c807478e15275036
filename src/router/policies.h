// The placement policies: which of several workers gets a request.
//
//   round-robin   each in turn, whatever it has to do
//   least-load    the fewest tokens queued and running
//   prefix        the longest match, whatever the load; of equal ones the least loaded
//   prefix+load   the fewest tokens until the request's own prompt is done, by the score below
//
// The first three are what prefix+load is compared with. Under `prefix`, a system prompt that all requests share sends
// all of them to whoever computed it first.
//
// Score of prefix+load, in tokens, the lowest wins:
//
//   score = (prompt - own match) + queued + running
//   own match = max(0, matched - common), where more than half of the candidates hold at least `common` tokens
//
// Tokens that wait or run are tokens computed before or beside this prompt's, so a longer match is worth exactly the
// work it saves: a holder that is behind by more than that is left alone, without a ratio or a threshold to tune. (On
// decode workers they are context, which each step reads; a match is what needs no transfer.) What most hold is left
// out of the match for the sake of those that lack it, a worker that has just started, say: charged for it, they
// would get nothing while the others have room, and so never come to hold it.
//
// A candidate with fewer blocks than needed comes after all that have enough, since the request would wait there for
// others to finish, which no number of tokens expresses. If none has enough, the score decides.
//
// In all policies what is equal goes to the candidate with fewer requests, then to the one chosen longest ago, then to
// the lowest index. So idle workers take turns, and a worker that comes back takes one turn, not all it has missed.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/placement.h"

namespace nmc::router {

inline constexpr const char* kDefaultPolicy = "prefix+load";

// All names that create_policy takes.
std::span<const char* const> policy_names();

// kInvalidArgument, with the names, for any other.
Result<std::unique_ptr<engine::PlacementPolicy>> create_policy(std::string_view name);

}  // namespace nmc::router
