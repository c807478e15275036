#include "store/cost_per_byte.h"

#include <algorithm>

namespace nmc::store {

CostPerBytePolicy::Rank CostPerBytePolicy::rank_of(std::uint64_t uses, Stamp stamp, const Use& use) {
  NMC_REQUIRE(use.bytes > 0 && use.saved_s >= 0, "bytes={} saved_s={}", use.bytes, use.saved_s);
  return {floor_ + static_cast<double>(uses) * use.saved_s / use.bytes, stamp, told_++, uses};
}

void CostPerBytePolicy::touch(Id id, Stamp stamp, const Use& use) {
  NMC_REQUIRE(contains(id), "id={}", id);
  const Rank& known = order_.rank_of(id);
  if (stamp > known.stamp) order_.change(id, rank_of(known.uses + 1, stamp, use));
}

void CostPerBytePolicy::erase(Id id) {
  NMC_REQUIRE(contains(id), "id={}", id);
  if (order_.first().id == id) floor_ = std::max(floor_, order_.first().rank.worth);
  order_.erase(id);
}

std::optional<EvictionPolicy::Candidate> CostPerBytePolicy::victim() {
  if (order_.size() == 0) return std::nullopt;
  return Candidate{order_.first().id, order_.first().rank.stamp};
}

}  // namespace nmc::store
