#include "store/lfu.h"

#include <limits>

namespace nmc::store {

LfuPolicy::Rank LfuPolicy::rank_of(std::uint32_t uses, Stamp stamp, const Use& use) {
  constexpr std::uint32_t kTop = std::numeric_limits<std::uint32_t>::max();
  return {by_ == By::kDepth ? 0 : uses, by_ == By::kUses ? 0 : kTop - use.position, stamp, told_++};
}

void LfuPolicy::touch(Id id, Stamp stamp, const Use& use) {
  NMC_REQUIRE(contains(id), "id={}", id);
  const Rank& known = order_.rank_of(id);
  if (stamp <= known.stamp) return;
  const std::uint32_t uses = known.uses < std::numeric_limits<std::uint32_t>::max() ? known.uses + 1 : known.uses;
  order_.change(id, rank_of(uses, stamp, use));
}

std::optional<EvictionPolicy::Candidate> LfuPolicy::victim() {
  if (order_.size() == 0) return std::nullopt;
  return Candidate{order_.first().id, order_.first().rank.stamp};
}

}  // namespace nmc::store
