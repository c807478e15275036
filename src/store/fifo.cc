#include "store/fifo.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {

void FifoPolicy::insert(Id id, Stamp stamp, const Use&) {
  NMC_REQUIRE(!contains(id), "id={}", id);
  if (id >= items_.size()) items_.resize(std::size_t{id} + 1);
  items_[id] = {stamp, true};
  list_.push_back(id);
}

void FifoPolicy::touch(Id id, Stamp stamp, const Use&) {
  NMC_REQUIRE(contains(id), "id={}", id);
  items_[id].stamp = std::max(items_[id].stamp, stamp);
}

void FifoPolicy::erase(Id id) {
  NMC_REQUIRE(contains(id), "id={}", id);
  items_[id].here = false;
  list_.erase(id);
}

std::optional<EvictionPolicy::Candidate> FifoPolicy::victim() {
  if (list_.size() == 0) return std::nullopt;
  return Candidate{list_.front(), items_[list_.front()].stamp};
}

}  // namespace nmc::store
