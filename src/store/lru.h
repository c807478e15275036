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
  LruPolicy() = default;
  // Several orders, each id in one of them at most, can share the memory of positions. It outlives them.
  explicit LruPolicy(std::vector<std::uint32_t>& shared_positions) : positions_(&shared_positions) {}
  LruPolicy(const LruPolicy&) = delete;
  LruPolicy& operator=(const LruPolicy&) = delete;

  void insert(Id id, Stamp stamp) override;
  void touch(Id id, Stamp stamp) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() const override;
  bool contains(Id id) const override {
    return id < positions_->size() && (*positions_)[id] < heap_.size() && heap_[(*positions_)[id]].id == id;
  }
  Stamp stamp_of(Id id) const override { return heap_[(*positions_)[id]].stamp; }
  std::size_t size() const override { return heap_.size(); }

 private:
  struct Node {
    Stamp stamp;
    std::uint64_t told;
    Id id;
    bool before(const Node& other) const { return stamp != other.stamp ? stamp < other.stamp : told < other.told; }
  };
  void put(std::size_t at, const Node& node);
  void sift_up(std::size_t at);
  void sift_down(std::size_t at);

  std::vector<Node> heap_;
  std::vector<std::uint32_t> own_positions_;
  std::vector<std::uint32_t>* positions_ = &own_positions_;  // by id; of an id that isn't here it says nothing
  std::uint64_t told_ = 0;
};

}  // namespace nmc::store
