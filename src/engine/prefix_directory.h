// Which worker is known to hold which block of a prefix chain: what a front remembers of the workers it sent prompts
// to.
//
// It is a hint. A worker evicts blocks without saying so, and one whose entry was dropped here may hold the block
// still. A wrong hint costs a recompute or a missed hit, never a wrong token: what is read is decided by the worker's
// own lookup.
//
// Invariants: (1) at most `entries` blocks are known; (2) each known block has at least one worker; (3) the order is
// that of the last note, the end of a chain before its beginning, so the beginning, which more prompts share and
// without which the rest matches nothing, is dropped last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "kv/prefix.h"

namespace nmc::engine {

// Not thread-safe. Takes about 160 bytes an entry.
class PrefixDirectory {
 public:
  static constexpr std::size_t kWorkersMax = 64;  // workers are numbered from 0

  explicit PrefixDirectory(std::size_t entries_max);  // not 0

  // `worker` holds, or is about to compute, the blocks of this chain from its beginning.
  void note(std::span<const kv::PrefixKey> keys, std::size_t worker);

  // `worker` has lost its blocks: it was restarted, or is gone. Walks all entries.
  void forget(std::size_t worker);

  // Length of the leading run of `keys` that `worker` is known to hold. Asking doesn't count as use.
  std::size_t matched_blocks(std::span<const kv::PrefixKey> keys, std::size_t worker) const;

  std::size_t size() const { return entries_.size(); }  // known blocks

 private:
  struct Entry {
    kv::PrefixKey key;
    std::uint64_t workers;  // bit w: worker w
  };
  using Order = std::list<Entry>;

  void move_to_front(Order::iterator entry);
  void drop_oldest();

  std::size_t entries_max_;
  Order order_;  // noted last in front
  std::unordered_map<kv::PrefixKey, Order::iterator, DigestHash> entries_;
};

}  // namespace nmc::engine
