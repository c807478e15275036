#include "sim/opt.h"

#include <limits>

#include "base/check.h"

namespace nmc::sim {

OptPolicy::OptPolicy(const Trace& trace) : uses_(trace.blocks_total()), end_(trace.blocks_unique()) {
  std::vector<std::uint64_t> counts(trace.blocks_unique());
  for (const TraceRequest& request : trace.requests()) {
    for (const std::uint32_t block : trace.blocks_of(request)) ++counts[block];
  }
  std::uint64_t at = 0;
  for (std::size_t block = 0; block < counts.size(); ++block) {
    end_[block] = at;
    at += counts[block];
  }
  cursor_ = end_;
  std::uint64_t use = 0;
  for (const TraceRequest& request : trace.requests()) {
    for (const std::uint32_t block : trace.blocks_of(request)) uses_[end_[block]++] = use++;
  }
}

void OptPolicy::advance(std::uint64_t use) {
  NMC_REQUIRE(use + 1 >= now_, "use={} now={}", use, now_);
  now_ = use + 1;
}

std::uint64_t OptPolicy::next_use(Id id) {
  std::uint64_t& cursor = cursor_[id];
  while (cursor < end_[id] && uses_[cursor] < now_) ++cursor;
  return cursor < end_[id] ? uses_[cursor] : std::numeric_limits<std::uint64_t>::max();
}

void OptPolicy::insert(Id id, Stamp stamp, const store::Use&) { order_.insert(id, {next_use(id), stamp, told_++}); }

void OptPolicy::touch(Id id, Stamp stamp, const store::Use&) { order_.change(id, {next_use(id), stamp, told_++}); }

std::optional<store::EvictionPolicy::Candidate> OptPolicy::victim() {
  if (order_.size() == 0) return std::nullopt;
  return Candidate{order_.first().id, order_.first().rank.stamp};
}

}  // namespace nmc::sim
