// Least recently used goes first; of equal stamps, what was told first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "store/eviction.h"
#include "store/ranked_ids.h"

namespace nmc::store {

// By (stamp, order of telling): stamps that come late are put where they belong, which a list could do only by a walk.
class LruPolicy final : public EvictionPolicy {
 public:
  LruPolicy() = default;
  // Several orders, each id in one of them at most, can share the memory of positions. It outlives them.
  explicit LruPolicy(std::vector<std::uint32_t>& shared_positions) : order_(shared_positions) {}

  void insert(Id id, Stamp stamp) { order_.insert(id, {stamp, told_++}); }
  void touch(Id id, Stamp stamp) {
    NMC_REQUIRE(contains(id), "id={}", id);
    if (stamp > stamp_of(id)) order_.raise(id, {stamp, told_++});
  }
  void insert(Id id, Stamp stamp, const Use&) override { insert(id, stamp); }
  void touch(Id id, Stamp stamp, const Use&) override { touch(id, stamp); }
  void erase(Id id) override { order_.erase(id); }
  std::optional<Candidate> victim() override {
    if (order_.size() == 0) return std::nullopt;
    return Candidate{order_.first().id, order_.first().rank.stamp};
  }
  bool contains(Id id) const override { return order_.contains(id); }
  Stamp stamp_of(Id id) const override { return order_.rank_of(id).stamp; }
  std::size_t size() const override { return order_.size(); }

 private:
  struct Rank {
    Stamp stamp;
    std::uint64_t told;
    bool before(const Rank& other) const { return stamp != other.stamp ? stamp < other.stamp : told < other.told; }
  };

  RankedIds<Rank> order_;
  std::uint64_t told_ = 0;
};

}  // namespace nmc::store
