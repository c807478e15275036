// Least used goes first, or what lies deepest in its chain, or the one among equals of the other. Uses are counted from
// the insertion on; an eviction forgets them. What is equal so far goes by its last use, the oldest first.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "store/eviction.h"
#include "store/ranked_ids.h"

namespace nmc::store {

class LfuPolicy final : public EvictionPolicy {
 public:
  enum class By {
    kUses,           // lfu
    kUsesThenDepth,  // lfu-len
    kDepth,          // length-aware
  };
  explicit LfuPolicy(By by) : by_(by) {}

  // The position is that of the last use told.
  void insert(Id id, Stamp stamp, const Use& use) override { order_.insert(id, rank_of(1, stamp, use)); }
  void touch(Id id, Stamp stamp, const Use& use) override;
  void erase(Id id) override { order_.erase(id); }
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return order_.contains(id); }
  Stamp stamp_of(Id id) const override { return order_.rank_of(id).stamp; }
  std::size_t size() const override { return order_.size(); }

 private:
  struct Rank {
    std::uint32_t uses;
    std::uint32_t height;  // the less the deeper
    Stamp stamp;
    std::uint64_t told;
    bool before(const Rank& other) const {
      return std::tie(uses, height, stamp, told) < std::tie(other.uses, other.height, other.stamp, other.told);
    }
  };
  Rank rank_of(std::uint32_t uses, Stamp stamp, const Use& use);

  const By by_;
  RankedIds<Rank> order_;
  std::uint64_t told_ = 0;
};

}  // namespace nmc::store
