// The identity of a model's weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/thread_pool.h"

namespace nmc::model {

struct NamedTensor {
  std::string name;
  std::string type;  // as its file calls it
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

// The same however the tensors are cut into files. A leaf is the SHA-256 of up to 1 MiB of a tensor; a tensor is
// SHA-256 of its name, type and shape as length-prefixed fields and its leaves in order; the weights are SHA-256 of a
// version field and the tensors in the order given, which is that of their names. Reads every byte; leaves are hashed
// in parallel.
Digest weights_digest(std::span<const NamedTensor> tensors, ThreadPool& pool);

}  // namespace nmc::model
