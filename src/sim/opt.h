// The offline optimum (Belady's MIN): what is used again latest goes first. It knows the whole trace, so it is no
// policy for a store but a bound for the others: exact for blocks one by one, near it for hits that have to be a
// prefix.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/trace.h"
#include "store/eviction.h"
#include "store/ranked_ids.h"

namespace nmc::sim {

// Ids are the trace's block numbers. Uses are numbered from 0 on through the requests in order, block by block.
class OptPolicy final : public store::EvictionPolicy {
 public:
  explicit OptPolicy(const Trace& trace);

  // Uses up to and with that one are past. Never goes back.
  void advance(std::uint64_t use);

  void insert(Id id, Stamp stamp, const store::Use& use) override;
  void touch(Id id, Stamp stamp, const store::Use& use) override;
  void erase(Id id) override { order_.erase(id); }
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return order_.contains(id); }
  Stamp stamp_of(Id id) const override { return order_.rank_of(id).stamp; }
  std::size_t size() const override { return order_.size(); }

 private:
  struct Rank {
    std::uint64_t next;
    Stamp stamp;
    std::uint64_t told;
    bool before(const Rank& other) const {
      if (next != other.next) return next > other.next;
      return stamp != other.stamp ? stamp < other.stamp : told < other.told;
    }
  };
  std::uint64_t next_use(Id id);

  std::vector<std::uint64_t> uses_;    // of block 0, then of block 1, ...
  std::vector<std::uint64_t> cursor_;  // by block: into uses_, before it all is past
  std::vector<std::uint64_t> end_;
  std::uint64_t now_ = 0;  // what is below is past
  store::RankedIds<Rank> order_;
  std::uint64_t told_ = 0;
};

}  // namespace nmc::sim
