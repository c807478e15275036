// Ids in the order of their ranks: the lowest at hand, any one's rank changed at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace nmc::store {

// A binary heap with each id's position in it. Rank has `bool before(const Rank&) const`, a strict order in which no
// two ranks are equal. O(log n) but for first(), which is O(1). Not thread-safe.
template <class Rank>
class RankedIds {
 public:
  using Id = std::uint32_t;
  struct Node {
    Rank rank;
    Id id;
  };

  RankedIds() = default;
  // Several orders, each id in one of them at most, can share the memory of positions. It outlives them.
  explicit RankedIds(std::vector<std::uint32_t>& shared_positions) : positions_(&shared_positions) {}
  RankedIds(const RankedIds&) = delete;
  RankedIds& operator=(const RankedIds&) = delete;

  bool contains(Id id) const {
    return id < positions_->size() && (*positions_)[id] < heap_.size() && heap_[(*positions_)[id]].id == id;
  }
  const Rank& rank_of(Id id) const { return heap_[(*positions_)[id]].rank; }  // `id` is here
  std::size_t size() const { return heap_.size(); }
  const Node& first() const { return heap_.front(); }  // not empty

  void insert(Id id, const Rank& rank) {
    NMC_REQUIRE(!contains(id), "id={}", id);
    if (id >= positions_->size()) positions_->resize(std::size_t{id} + 1);
    heap_.push_back({rank, id});
    (*positions_)[id] = static_cast<std::uint32_t>(heap_.size() - 1);
    sift_up(heap_.size() - 1);
  }

  void change(Id id, const Rank& rank) {
    NMC_REQUIRE(contains(id), "id={}", id);
    heap_[(*positions_)[id]].rank = rank;
    sift_up((*positions_)[id]);
    sift_down((*positions_)[id]);
  }

  // The same for a rank that is after the one it has.
  void raise(Id id, const Rank& rank) {
    heap_[(*positions_)[id]].rank = rank;
    sift_down((*positions_)[id]);
  }

  void erase(Id id) {
    NMC_REQUIRE(contains(id), "id={}", id);
    const std::size_t at = (*positions_)[id];
    const Node last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    put(at, last);
    sift_up(at);
    sift_down((*positions_)[last.id]);
  }

 private:
  void put(std::size_t at, const Node& node) {
    heap_[at] = node;
    (*positions_)[node.id] = static_cast<std::uint32_t>(at);
  }

  void sift_up(std::size_t at) {
    const Node node = heap_[at];
    for (; at > 0 && node.rank.before(heap_[(at - 1) / 2].rank); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, node);
  }

  void sift_down(std::size_t at) {
    const Node node = heap_[at];
    for (;;) {
      std::size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].rank.before(heap_[child].rank)) ++child;
      if (!heap_[child].rank.before(node.rank)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, node);
  }

  std::vector<Node> heap_;
  std::vector<std::uint32_t> own_positions_;
  std::vector<std::uint32_t>* positions_ = &own_positions_;  // by id; of an id that isn't here it says nothing
};

}  // namespace nmc::store
