#include "store/eviction_policies.h"

#include <fmt/ranges.h>

#include "store/cost_per_byte.h"
#include "store/fifo.h"
#include "store/lfu.h"
#include "store/lru.h"
#include "store/s3_fifo.h"
#include "store/tiny_lfu.h"

namespace nmc::store {
namespace {

constexpr const char* kNames[] = {"lru",     "fifo",           "lfu",          "lfu-len", "length-aware",
                                  "s3-fifo", "freq-admission", "cost-per-byte"};

}  // namespace

std::span<const char* const> eviction_policy_names() { return kNames; }

Result<std::unique_ptr<EvictionPolicy>> create_eviction_policy(std::string_view name, std::size_t capacity) {
  std::unique_ptr<EvictionPolicy> policy;
  if (name == "lru") policy = std::make_unique<LruPolicy>();
  if (name == "fifo") policy = std::make_unique<FifoPolicy>();
  if (name == "lfu") policy = std::make_unique<LfuPolicy>(LfuPolicy::By::kUses);
  if (name == "lfu-len") policy = std::make_unique<LfuPolicy>(LfuPolicy::By::kUsesThenDepth);
  if (name == "length-aware") policy = std::make_unique<LfuPolicy>(LfuPolicy::By::kDepth);
  if (name == "s3-fifo") policy = std::make_unique<S3FifoPolicy>(capacity);
  if (name == "freq-admission") policy = std::make_unique<TinyLfuPolicy>(capacity);
  if (name == "cost-per-byte") policy = std::make_unique<CostPerBytePolicy>();
  if (policy == nullptr) {
    return invalid_argument("policy \"{}\": expected one of {}", name, fmt::join(kNames, ", "));
  }
  return policy;
}

}  // namespace nmc::store
