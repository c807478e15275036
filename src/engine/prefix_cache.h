// The engine's use of the store: which blocks of a sequence are there already, and publishing those that became full.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "kv/prefix.h"
#include "store/store.h"

namespace nmc::engine {

// Of `tokens` under the request's salt and adapter, which `ns` has not.
kv::PrefixChain prefix_chain(kv::Namespace ns, const GenerateRequest& request, std::span<const TokenId> tokens);

// Thread-safe (the store is); a Sequence is its caller's.
class PrefixCache {
 public:
  // `ns` with neither adapter nor salt. `vocab` is the number of logits a tail object holds. All is borrowed and
  // outlives this.
  PrefixCache(store::Store& store, kv::Namespace ns, std::size_t vocab, const Clock& clock);

  // That of a worker by options.reuse: kLocal gives it a scope of its own, kNone gives none (null).
  static std::unique_ptr<PrefixCache> of_worker(const std::string& worker, store::Store& store, kv::Namespace ns,
                                                std::size_t vocab, const RuntimeOptions& options);

  // A fresh chain of `tokens` under the request's salt and adapter.
  kv::PrefixChain chain(const GenerateRequest& request, std::span<const TokenId> tokens) const;

  // Attaches the longest run of blocks that could really be read, and where the whole prompt is known its tail too:
  // then everything is computed and sequence.logits are set. Otherwise at least one token is left to compute, and only
  // whole blocks are attached. Never fails: what can't be read is computed. Fills the lookup part of the metrics if
  // `fresh`.
  void restore(Sequence& sequence, bool fresh);

  // Commits every block that is full of computed tokens and isn't committed yet. A block another sequence committed
  // first is replaced by that one.
  void publish(Sequence& sequence);

  // Keeps the end of a finished prompt: the partial block and the logits of its last position. Best effort.
  void publish_tail(const Sequence& sequence, std::span<const float> logits);

  // Gives all blocks of the sequence back. Those it published count as used now, the end of the chain first, so that
  // the beginning, which more prompts share, stays longest.
  void release(Sequence& sequence);

  const kv::KvLayout& layout() const { return ns_.layout; }

 private:
  bool restore_tail(Sequence& sequence, CacheSource* source);

  store::Store& store_;
  kv::Namespace ns_;
  std::size_t vocab_;
  const Clock& clock_;
};

}  // namespace nmc::engine
