#include "store/lru.h"

#include "base/check.h"

namespace nmc::store {

void LruPolicy::insert(Id id, Stamp stamp) {
  NMC_REQUIRE(!contains(id), "id={}", id);
  if (id >= positions_->size()) positions_->resize(std::size_t{id} + 1);
  heap_.push_back({stamp, told_++, id});
  (*positions_)[id] = static_cast<std::uint32_t>(heap_.size() - 1);
  sift_up(heap_.size() - 1);
}

void LruPolicy::touch(Id id, Stamp stamp) {
  NMC_REQUIRE(contains(id), "id={}", id);
  Node& node = heap_[(*positions_)[id]];
  if (stamp <= node.stamp) return;
  node.stamp = stamp;
  node.told = told_++;
  sift_down((*positions_)[id]);
}

void LruPolicy::erase(Id id) {
  NMC_REQUIRE(contains(id), "id={}", id);
  const std::size_t at = (*positions_)[id];
  const Node last = heap_.back();
  heap_.pop_back();
  if (at == heap_.size()) return;
  put(at, last);
  sift_up(at);
  sift_down((*positions_)[last.id]);
}

std::optional<EvictionPolicy::Candidate> LruPolicy::victim() const {
  if (heap_.empty()) return std::nullopt;
  return Candidate{heap_.front().id, heap_.front().stamp};
}

void LruPolicy::put(std::size_t at, const Node& node) {
  heap_[at] = node;
  (*positions_)[node.id] = static_cast<std::uint32_t>(at);
}

void LruPolicy::sift_up(std::size_t at) {
  const Node node = heap_[at];
  for (; at > 0 && node.before(heap_[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
  put(at, node);
}

void LruPolicy::sift_down(std::size_t at) {
  const Node node = heap_[at];
  for (;;) {
    std::size_t child = 2 * at + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
    if (!heap_[child].before(node)) break;
    put(at, heap_[child]);
    at = child;
  }
  put(at, node);
}

}  // namespace nmc::store
