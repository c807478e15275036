// The order in which what can be evicted goes. A policy knows ids, stamps and a few traits of what is used, and nothing
// of a store, so that a simulator of plans runs the very classes that the store runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace nmc::store {

// What some policies want to know of a use beyond who and when. The defaults make all things equal.
struct Use {
  std::uint64_t key = 0;       // names what is used across its lives here, while ids are given anew: ghosts, sketches
  std::uint32_t position = 0;  // how many blocks come before it in its chain
  double saved_s = 1;          // time that a hit saves
  double bytes = 1;            // room it takes; above 0
};

// Not thread-safe.
//
// A caller with a capacity inserts first and evicts victims while it is over: so a newcomer that is its own victim is
// what a policy doesn't admit.
class EvictionPolicy {
 public:
  using Id = std::uint32_t;
  using Stamp = std::uint64_t;  // any clock whose stamps grow with time
  struct Candidate {
    Id id = 0;
    Stamp stamp = 0;
  };

  virtual ~EvictionPolicy() = default;

  // `id` is new here and was used at `stamp`. Ids are small numbers: memory goes with the largest one.
  virtual void insert(Id id, Stamp stamp, const Use& use) = 0;
  // `id`, which is here, was used at `stamp`. Stamps may come late: an older one than it has changes nothing.
  virtual void touch(Id id, Stamp stamp, const Use& use) = 0;
  // `id`, which is here, is gone: evicted, if it is what victim() named last, else removed.
  virtual void erase(Id id) = 0;

  // What should go first, with the stamp it is known to have been used at last; it stays until erased. The caller may
  // know of a later use: it touches, and asks again. Nothing when empty. Asked twice without a change between, the
  // answer is the same.
  virtual std::optional<Candidate> victim() = 0;

  virtual bool contains(Id id) const = 0;
  virtual Stamp stamp_of(Id id) const = 0;  // `id` is here
  virtual std::size_t size() const = 0;
};

}  // namespace nmc::store
