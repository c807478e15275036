#include "store/tiny_lfu.h"

namespace nmc::store {

void TinyLfuPolicy::insert(Id id, Stamp stamp, const Use& use) {
  lru_.insert(id, stamp);
  if (id >= keys_.size()) keys_.resize(std::size_t{id} + 1);
  keys_[id] = use.key;
  sketch_.add(use.key);
  newcomer_ = id;
}

void TinyLfuPolicy::touch(Id id, Stamp stamp, const Use&) {
  NMC_REQUIRE(contains(id), "id={}", id);
  if (stamp <= lru_.stamp_of(id)) return;
  lru_.touch(id, stamp);
  sketch_.add(keys_[id]);
}

void TinyLfuPolicy::erase(Id id) {
  lru_.erase(id);
  if (id == newcomer_) newcomer_ = IdLinks::kNone;
}

std::optional<EvictionPolicy::Candidate> TinyLfuPolicy::victim() {
  const std::optional<Candidate> oldest = lru_.victim();
  if (!oldest || newcomer_ == IdLinks::kNone) return oldest;
  if (sketch_.count(keys_[newcomer_]) >= sketch_.count(keys_[oldest->id])) return oldest;
  return Candidate{newcomer_, lru_.stamp_of(newcomer_)};
}

}  // namespace nmc::store
