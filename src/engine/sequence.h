// One request on its way through the engine: its tokens, the KV blocks that hold them, and what was measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "kv/prefix.h"
#include "store/store.h"

namespace nmc::engine {

// Memory of one KV block: committed and shared (read only), or this sequence's own (to be filled).
class Block {
 public:
  explicit Block(store::Pin pin) : held_(std::move(pin)) {}
  explicit Block(store::Reservation reservation) : held_(std::move(reservation)) {}

  bool committed() const { return std::holds_alternative<store::Pin>(held_); }
  // Own blocks may be written through it, committed ones only read.
  std::byte* address() const {
    if (const auto* pin = std::get_if<store::Pin>(&held_)) return const_cast<std::byte*>(pin->bytes().data());
    return std::get<store::Reservation>(held_).bytes().data();
  }
  // An own block's memory, for store::Store::commit(), which takes it over only on success.
  store::Reservation&& take_reservation() { return std::move(std::get<store::Reservation>(held_)); }
  const store::Pin& pin() const { return std::get<store::Pin>(held_); }  // of a committed block
  // A committed block's pin. Leaves an empty block behind.
  store::Pin take_pin() { return std::move(std::get<store::Pin>(held_)); }

 private:
  std::variant<store::Pin, store::Reservation> held_;
};

// Set by anybody, looked at by the worker that has the sequence at least once a step.
struct CancelToken {
  std::atomic<bool> cancelled{false};
};

// KV under way between two workers, from Handover::send() to receive(). Destroying it drops the KV and whatever memory
// held it.
class Parcel {
 public:
  virtual ~Parcel() = default;
  virtual std::size_t blocks() const { return 0; }  // of the store's pool that it keeps from others
};

struct Sequence;

// Where KV goes while a prompt is still being computed, so that whoever takes over has most of it when it is done.
// Called on the worker's thread.
class KvOutlet {
 public:
  virtual ~KvOutlet() = default;
  // A step writes positions sequence.computed .. `end` - 1, and has just written those of `layer`. Layers come in
  // order.
  virtual void layer_done(const Sequence& sequence, std::size_t end, std::size_t layer) = 0;
};

// Owned by one worker at a time and touched by its loop only; the cancel token is the exception.
struct Sequence {
  GenerateRequest request;
  std::shared_ptr<RequestListener> listener;
  std::shared_ptr<CancelToken> cancel;
  std::uint64_t arrival = 0;  // order of submission: the newest is preempted first
  std::uint64_t ticket = 0;   // in a worker process: the front's name for this work

  std::vector<TokenId> ending_ids;  // the request's and, unless it ignores them, the model's
  std::vector<TokenId> tokens;      // prompt, then what was generated
  std::size_t computed = 0;         // leading tokens whose KV is in `blocks`
  std::vector<Block> blocks;
  std::vector<std::byte*> addresses;     // of `blocks`, as the forward pass wants them
  std::optional<kv::PrefixChain> chain;  // of all tokens; none when nothing is to be reused
  std::size_t published = 0;             // leading blocks that are committed (or came committed)
  std::vector<float> logits;             // of the last token, when they came from the cache
  std::size_t prompt_told = 1;           // position of the prompt from which on its logprobs are still to be told
  std::unique_ptr<Parcel> parcel;        // KV that still has to be unpacked
  std::shared_ptr<KvOutlet> outlet;      // hears of KV as it is computed; null: nobody does

  RequestMetrics metrics;
  Nanos submitted{0};
  Nanos admitted{0};
  Nanos first_token{0};
  bool finished = false;   // done on its present worker: ended, or ...
  bool passed_on = false;  // ... to be taken over by another
  bool stays = false;      // not to be handed over after its first token, though others are

  std::size_t generated() const { return tokens.size() - request.prompt.size(); }
  std::size_t remaining() const { return tokens.size() - computed; }
  // Wants the logits of each token of its prompt, so it has to compute them all.
  bool tells_prompt() const { return request.prompt_logprobs.has_value() && generated() == 0; }

  void add_block(Block block) {
    addresses.push_back(block.address());
    blocks.push_back(std::move(block));
  }
  void replace_block(std::size_t index, Block block) {
    addresses[index] = block.address();
    blocks[index] = std::move(block);
  }
  // Gives all blocks back. PrefixCache::release() also notes their use.
  void release_blocks() {
    blocks.clear();
    addresses.clear();
    computed = 0;
    published = 0;
  }
};

}  // namespace nmc::engine
