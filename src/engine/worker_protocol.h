// The messages between a front, which takes requests, and its worker processes, as bodies of net/frame.h; and those by
// which one worker takes KV from another. Layouts: docs/formats.md, "Worker protocol".
//
// A front has two connections to a worker. On one it asks for things to be done; on the other it asks, again and again,
// for what has happened, and is answered when something has, or to show that the worker lives. Work is named by tickets
// that the front gives out, one for each time it hands a request to a worker: so what an earlier try says is known
// for what it is.
//
// A datagram of a Unix socket is small beside a long prompt: lists of tokens and of blocks go ahead of the message they
// belong to, in pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "engine/request.h"
#include "engine/runtime.h"
#include "net/body.h"

namespace nmc::engine {

enum class WorkerOp : std::uint16_t {
  kHello = 1,  // who the front is -> who the worker is; makes this the connection by which things are asked for
  kEvents,     // the number that kHello gave -> what has happened since, and figures
  kTokens,     // a piece of a list of tokens of the next kAssign of that ticket
  kNames,      // a piece of its list of blocks
  kAssign,     // a request, or what is left of one
  kImport,     // begin to take a hand-over's KV from where it is being made; a kAssign will follow
  kCancel,     // a ticket
  kRenew,      // a hand-over's KV is still wanted
  kRelease,    // it isn't
  kPull,       // between workers: a hand-over's snapshot from an offset on
};

inline constexpr std::size_t kTokensAPiece = 16 << 10;
inline constexpr std::size_t kNamesAPiece = 1 << 10;
inline constexpr std::size_t kEventBytesMax = 64 << 10;  // of one answer to kEvents

struct FrontHello {
  Digest ns;  // of the model, without adapter and salt: both must compute the same KV
  std::string layout;
  std::string transfer;
  Nanos heartbeat{0};  // an answer to kEvents comes at least so often
};

struct WorkerHello {
  std::string name;
  std::string role;  // "prefill", "decode"
  std::int64_t pid = 0;
  std::uint64_t session = 0;  // for kEvents
  std::string store;          // which store its blocks lie in: workers with the same text share them
  std::string kv_address;     // where other workers take KV from it
  std::int64_t now_ns = 0;    // its monotonic clock
};

// A block of a hand-over by name: what a worker of the same store finds there, if it is still that very object.
struct BlockName {
  Digest key;
  std::uint64_t generation = 0;
  bool sealed = false;  // named for this hand-over alone, to be removed by whoever takes it
};

struct Assignment {
  std::uint64_t ticket = 0;
  std::uint64_t arrival = 0;       // order of submission over all workers
  GenerateRequest request;         // without deadlines, which are the front's, and adapter, see below
  std::string adapter;             // digest of one that the worker has loaded; "": the base model
  std::vector<TokenId> generated;  // tokens of the answer that are out already
  bool whole = false;              // to its end; else up to the first token, and then handed over
  std::uint64_t handover = 0;      // whose KV it leaves (not whole) or begins with (whole); 0: none
  std::string source;              // whole: the kv_address of the worker that has it; "": `names` say all
  std::uint64_t kv_tokens = 0;     // of that KV
  std::vector<BlockName> names;    // of it
};

enum class TokenList : std::uint8_t { kPrompt, kGenerated, kForced };

// A worker's figures, with each answer to kEvents.
struct WorkerFigures {
  std::uint64_t queued = 0, running = 0;  // sequences
  bool lacks_memory = false;
  std::int64_t busy_ns = 0, wall_ns = 0;
  std::uint64_t steps = 0, preemptions = 0;
  std::uint64_t blocks_held = 0;  // reservations and pins of sequences and hand-overs
  std::uint64_t exports = 0, imports = 0;
};

namespace event {
struct Admitted {
  std::uint64_t ticket = 0;
};
struct Token {
  std::uint64_t ticket = 0;
  SampledToken token;
};
struct Prompt {
  std::uint64_t ticket = 0;
  std::vector<PromptToken> tokens;
};
struct Names {  // a piece of the list that belongs to the next Prefilled of the ticket
  std::uint64_t ticket = 0;
  std::vector<BlockName> names;
};
struct Prefilled {  // the first token is out; the request is no more this worker's
  std::uint64_t ticket = 0;
  bool handed_over = false;  // KV waits to be taken; else it is lost and has to be computed again
  std::uint64_t kv_tokens = 0;
  RequestMetrics metrics;
};
struct Finished {
  std::uint64_t ticket = 0;
  FinishReason reason = FinishReason::kStop;
  std::optional<Error> error;
  RequestMetrics metrics;
};
struct Imported {  // a hand-over's KV was taken, or given up: whoever has it can let go
  std::uint64_t handover = 0;
};
}  // namespace event
using WorkerEvent = std::variant<event::Admitted, event::Token, event::Names, event::Prefilled, event::Finished,
                                 event::Imported, event::Prompt>;

// Of a hand-over's snapshot.
enum class PullState : std::uint8_t {
  kMore = 0,  // more will come
  kWhole,     // all of it is there
  kFailed,    // it won't be
};
struct PullReply {
  PullState state = PullState::kMore;
  std::uint64_t written = 0;  // bytes from the start that are there
  std::uint64_t total = 0;    // bytes of the whole
  Nanos waited{0};            // for there to be any
};

void put_front_hello(net::BodyWriter& body, const FrontHello& hello);
FrontHello get_front_hello(net::BodyReader& body);
void put_worker_hello(net::BodyWriter& body, const WorkerHello& hello);
WorkerHello get_worker_hello(net::BodyReader& body);
// Without its lists, which go ahead by put_tokens() and put_names().
void put_assignment(net::BodyWriter& body, const Assignment& assignment);
Assignment get_assignment(net::BodyReader& body);
void put_tokens(net::BodyWriter& body, std::span<const TokenId> tokens);
std::vector<TokenId> get_tokens(net::BodyReader& body);
void put_names(net::BodyWriter& body, std::span<const BlockName> names);
std::vector<BlockName> get_names(net::BodyReader& body);
void put_pull_reply(net::BodyWriter& body, const PullReply& reply);
PullReply get_pull_reply(net::BodyReader& body);
void put_figures(net::BodyWriter& body, const WorkerFigures& figures);
WorkerFigures get_figures(net::BodyReader& body);
void put_event(net::BodyWriter& body, const WorkerEvent& event);
// Nothing: an event of a kind that doesn't exist, after which the body can't be read on.
std::optional<WorkerEvent> get_event(net::BodyReader& body);

}  // namespace nmc::engine
