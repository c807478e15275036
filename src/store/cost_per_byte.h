// What saves the least time a byte goes first: uses x saved time / bytes, as GreedyDual-Size-Frequency has it
// (Cherkasova, 1998). What is told gets the worth of the last victim on top, so that old worth fades. Of equal worth
// goes what was used longest ago.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "store/eviction.h"
#include "store/ranked_ids.h"

namespace nmc::store {

class CostPerBytePolicy final : public EvictionPolicy {
 public:
  void insert(Id id, Stamp stamp, const Use& use) override { order_.insert(id, rank_of(1, stamp, use)); }
  void touch(Id id, Stamp stamp, const Use& use) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return order_.contains(id); }
  Stamp stamp_of(Id id) const override { return order_.rank_of(id).stamp; }
  std::size_t size() const override { return order_.size(); }

 private:
  struct Rank {
    double worth;
    Stamp stamp;
    std::uint64_t told;
    std::uint64_t uses;
    bool before(const Rank& other) const {
      return std::tie(worth, stamp, told) < std::tie(other.worth, other.stamp, other.told);
    }
  };
  Rank rank_of(std::uint64_t uses, Stamp stamp, const Use& use);

  RankedIds<Rank> order_;
  double floor_ = 0;  // the worth of the last victim
  std::uint64_t told_ = 0;
};

}  // namespace nmc::store
