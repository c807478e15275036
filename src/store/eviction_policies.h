// The eviction policies by name.
//
//   lru             used longest ago                                    (lru.h)
//   fifo            here for longest                                    (fifo.h)
//   lfu             used least since it came                            (lfu.h)
//   lfu-len         the same, of equals the deepest in its chain
//   length-aware    the deepest in its chain
//   s3-fifo         three queues: short, main, ghost                    (s3_fifo.h)
//   freq-admission  lru behind an admission by frequency, TinyLFU       (tiny_lfu.h)
//   cost-per-byte   the least saved time a byte, with uses and ageing   (cost_per_byte.h)
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "store/eviction.h"

namespace nmc::store {

// All names that create_eviction_policy takes.
std::span<const char* const> eviction_policy_names();

// `capacity`: how many things are going to be here at most, which shapes s3-fifo's queues and freq-admission's sketch.
// kInvalidArgument, with the names, for any other name.
Result<std::unique_ptr<EvictionPolicy>> create_eviction_policy(std::string_view name, std::size_t capacity);

}  // namespace nmc::store
