// Least recently used goes first; of equal stamps, what was told first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "store/eviction.h"

namespace nmc::store {

// A binary heap by (stamp, order of telling) with each id's position in it: stamps that come late are put where they
// belong, which a list could do only by a walk. O(log n) but for victim(), which is O(1).
class LruPolicy final : public EvictionPolicy {
 public:
  void insert(Id id, Stamp stamp) override;
  void touch(Id id, Stamp stamp) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() const override;
  bool contains(Id id) const override { return id < position_.size() && position_[id] != kAbsent; }
  Stamp stamp_of(Id id) const override { return heap_[position_[id]].stamp; }
  std::size_t size() const override { return heap_.size(); }

 private:
  struct Node {
    Stamp stamp;
    std::uint64_t told;
    Id id;
    bool before(const Node& other) const { return stamp != other.stamp ? stamp < other.stamp : told < other.told; }
  };
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  void put(std::size_t at, const Node& node);
  void sift_up(std::size_t at);
  void sift_down(std::size_t at);

  std::vector<Node> heap_;
  std::vector<std::uint32_t> position_;  // by id
  std::uint64_t told_ = 0;
};

}  // namespace nmc::store
