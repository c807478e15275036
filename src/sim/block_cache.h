// A cache of a trace's blocks over one of the store's eviction policies, or the offline optimum.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/trace.h"
#include "store/eviction.h"

namespace nmc::sim {

inline constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

class OptPolicy;

// The store's, then "opt".
std::span<const char* const> policy_names();

// Not thread-safe. The trace outlives it.
class BlockCache {
 public:
  // kInvalidArgument for a name that isn't one, with the names.
  static Result<BlockCache> create(std::string_view policy, std::uint64_t capacity_blocks, const Trace& trace);

  bool has(std::uint32_t block) const { return here_[block] != 0; }

  // Touches the block, or takes it in and then evicts while there are more than the capacity, which may be the block
  // itself. With a capacity of none nothing is taken in. What goes is appended to `gone`, if given.
  void use(std::uint32_t block, const store::Use& use, std::vector<std::uint32_t>* gone = nullptr);
  // For the optimum, which other policies ignore: uses of the trace up to and with that one are past.
  void advance(std::uint64_t use);

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t inserted() const { return inserted_; }
  std::uint64_t evicted() const { return evicted_; }

 private:
  BlockCache(std::unique_ptr<store::EvictionPolicy> policy, OptPolicy* opt, std::uint64_t capacity, std::size_t blocks)
      : policy_(std::move(policy)), opt_(opt), capacity_(capacity), here_(blocks) {}

  std::unique_ptr<store::EvictionPolicy> policy_;
  OptPolicy* opt_;  // policy_, where it is that one
  std::uint64_t capacity_;
  std::vector<std::uint8_t> here_;  // by block
  std::uint64_t stamp_ = 0, size_ = 0, inserted_ = 0, evicted_ = 0;
};

}  // namespace nmc::sim
