// A decoder's weights as its forward pass reads them: packed for the products, all in one piece of memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/syscall.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/product.h"
#include "model/weight_source.h"

namespace nmc::model {

// y = W x, plus a bias where the model has one.
struct Projection {
  kernels::PackedMatrix matrix;
  const float* bias = nullptr;
};

struct LayerWeights {
  const float* input_norm = nullptr;  // [hidden]
  const float* post_norm = nullptr;   // [hidden]
  const float* q_norm = nullptr;      // [head_dim], with k_norm, where the model norms queries and keys
  const float* k_norm = nullptr;
  // kQkv: [q + 2 kv][hidden], kOut: [hidden][q], kGateUp: [2 intermediate][hidden], kDown: [hidden][intermediate].
  std::array<Projection, kProducts> projections;

  const Projection& projection(Product product) const { return projections[index_of(product)]; }
};

// Where packed weights are kept.
struct PackOptions {
  // Beyond so many bytes they go to a file without a name in `folder`, whose pages the system may write out: a model
  // that is larger than the memory left works, slowly, instead of ending the process. Default: half of the memory there
  // is.
  std::uint64_t in_memory_max = total_memory() / 2;
  Path folder = {};  // empty: cache_folder()

  // Processes of one host share packed weights by a file in memory: the first makes it, and whoever has the same model
  // maps it. Byte layout: docs/formats.md, "Packed weights".
  enum class Share { kNo, kMake, kMap };
  Share share = Share::kNo;
  Path shared_file = {};
};

// Immutable after pack(); owns what its pointers point at.
class DecoderWeights {
 public:
  // 16-bit panels for kBf16 (an f16 source stays f16), f32 for kF32. Norms and biases are f32. Mapped from a file,
  // nothing of `source` is read; kVersionMismatch: the file is of another model, dtype or machine.
  static Result<DecoderWeights> pack(const ModelConfig& config, WeightSource& source, Dtype dtype, ThreadPool& pool,
                                     const PackOptions& options);

  Dtype dtype = Dtype::kBf16;            // of the matrices
  const std::byte* embedding = nullptr;  // [vocab][hidden], row-major, of `dtype`
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  kernels::PackedMatrix head;         // [vocab][hidden]
  std::string digest;

  std::size_t bytes() const { return memory_.size(); }

 private:
  explicit DecoderWeights(Mapping memory) : memory_(std::move(memory)) {}

  Mapping memory_;
};

}  // namespace nmc::model
