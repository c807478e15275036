#include "sim/block_cache.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "sim/opt.h"
#include "store/eviction_policies.h"

namespace nmc::sim {
namespace {

constexpr std::string_view kOpt = "opt";

std::vector<const char*> all_names() {
  std::vector<const char*> names(store::eviction_policy_names().begin(), store::eviction_policy_names().end());
  names.push_back(kOpt.data());
  return names;
}

}  // namespace

std::span<const char* const> policy_names() {
  static const std::vector<const char*> names = all_names();
  return names;
}

Result<BlockCache> BlockCache::create(std::string_view policy, std::uint64_t capacity_blocks, const Trace& trace) {
  if (policy == kOpt) {
    auto opt = std::make_unique<OptPolicy>(trace);
    OptPolicy* const known = opt.get();
    return BlockCache(std::move(opt), known, capacity_blocks, trace.blocks_unique());
  }
  const std::uint64_t entries = std::min<std::uint64_t>(capacity_blocks, trace.blocks_unique());
  auto made = store::create_eviction_policy(policy, capacity_blocks == kUnbounded ? entries : capacity_blocks);
  if (!made) return invalid_argument("policy \"{}\": expected one of {}", policy, fmt::join(policy_names(), ", "));
  return BlockCache(std::move(*made), nullptr, capacity_blocks, trace.blocks_unique());
}

void BlockCache::advance(std::uint64_t use) {
  if (opt_ != nullptr) opt_->advance(use);
}

void BlockCache::use(std::uint32_t block, const store::Use& use, std::vector<std::uint32_t>* gone) {
  ++stamp_;
  if (has(block)) {
    policy_->touch(block, stamp_, use);
    return;
  }
  if (capacity_ == 0) return;
  here_[block] = 1;
  ++size_;
  ++inserted_;
  policy_->insert(block, stamp_, use);
  while (size_ > capacity_) {
    const auto victim = policy_->victim();
    NMC_ASSERT(victim.has_value(), "size={}", size_);
    policy_->erase(victim->id);
    here_[victim->id] = 0;
    --size_;
    ++evicted_;
    if (gone != nullptr) gone->push_back(victim->id);
  }
}

}  // namespace nmc::sim
