// A low-rank adapter (LoRA) in PEFT's folder layout: adapter_config.json and adapter_model.safetensors. It is applied
// beside the base model's products, so one set of base weights serves any number of adapters in one batch.
// Source of the method: Hu et al., LoRA, https://arxiv.org/abs/2106.09685.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/product.h"

namespace nmc::model {

// Immutable, thread-safe.
class Adapter {
 public:
  // y[column ..] += up * (down * x). The adapter's scale is part of `up`.
  struct LowRank {
    std::size_t column = 0;      // of the product's output
    kernels::PackedMatrix down;  // [rank][in]: PEFT's lora_A
    kernels::PackedMatrix up;    // [out][rank]: PEFT's lora_B
  };

  // Reads the folder and packs it in f32. What doesn't fit `config` or isn't done here (DoRA, biases, whole modules,
  // adapted embeddings, patterns of ranks) is refused; a tensor is named with what was expected.
  static Result<std::shared_ptr<const Adapter>> load(const Path& folder, const ModelConfig& config, ThreadPool& pool);

  // Every projection of every layer adapted by numbers drawn from `seed`, the same on every machine.
  static Result<std::shared_ptr<const Adapter>> random(const ModelConfig& config, std::size_t rank, std::uint64_t seed,
                                                       ThreadPool& pool);

  const std::vector<LowRank>& parts(std::size_t layer, Product product) const {
    return layers_[layer][index_of(product)];
  }
  std::size_t rank() const { return rank_; }
  std::size_t bytes() const { return memory_.size(); }
  // Equal digests mean that equal base weights and tokens give equal KV; for kv::Namespace::adapter.
  const std::string& digest() const { return digest_; }

 private:
  friend class AdapterBuilder;
  Adapter() = default;

  std::size_t rank_ = 0;
  std::string digest_;
  Mapping memory_;
  std::vector<std::array<std::vector<LowRank>, kProducts>> layers_;
};

}  // namespace nmc::model
