// The order in which what can be evicted goes. A policy knows ids and stamps and nothing of a store, so that a
// simulator of plans runs the very classes that the store runs.
#pragma once

#include <cstdint>
#include <optional>

namespace nmc::store {

// Not thread-safe.
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
  virtual void insert(Id id, Stamp stamp) = 0;
  // `id`, which is here, was used at `stamp`. Stamps may come late: an older one than it has changes nothing.
  virtual void touch(Id id, Stamp stamp) = 0;
  // `id`, which is here, is gone.
  virtual void erase(Id id) = 0;

  // What should go first, with the stamp it is known to have been used at last; it stays until erased. The caller may
  // know of a later use: it touches, and asks again. Nothing when empty.
  virtual std::optional<Candidate> victim() const = 0;

  virtual bool contains(Id id) const = 0;
  virtual Stamp stamp_of(Id id) const = 0;  // `id` is here
  virtual std::size_t size() const = 0;
};

}  // namespace nmc::store
