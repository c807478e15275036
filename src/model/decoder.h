// The forward pass of a decoder (RMS norms, rotary positions, gated MLP) over sequences of mixed lengths, on packed
// weights and a paged KV cache.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/syscall.h"
#include "base/thread_pool.h"
#include "kv/layout.h"
#include "kv/prefix.h"
#include "model/config.h"
#include "model/decoder_weights.h"

namespace nmc::model {

class Adapter;
class Checkpoint;
class WeightSource;

// Rows of one sequence in a forward pass: consecutive tokens at positions start, start + 1, ...
struct Chunk {
  std::span<const kv::TokenId> tokens;  // at least one, each below the vocabulary size
  std::size_t start = 0;
  std::span<std::byte* const> blocks;  // address of each block up to the last token's, in order; those that hold
                                       // positions from `start` on are written
  float* logits = nullptr;             // [logit_rows][vocab], or nullptr when none are wanted
  std::size_t logit_rows = 1;          // of the last tokens, in their order
  const Adapter* adapter = nullptr;    // loaded for this decoder's config; nullptr: the base model alone
};

// Scratch memory of one caller of forward(); grows to the largest pass seen. Not thread-safe.
class Workspace {
 public:
  Workspace();
  ~Workspace();

 private:
  friend class Decoder;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Immutable; forward() may run on several threads at once, each with its own Workspace and its own blocks to write.
class Decoder {
 public:
  // Packs the weights: 16-bit panels for kBf16 (f16 checkpoints stay f16), f32 for kF32. `dtype` is also the KV
  // cache's.
  static Result<std::unique_ptr<Decoder>> create(const ModelConfig& config, WeightSource& weights, Dtype dtype,
                                                 ThreadPool& pool, const PackOptions& options = {});
  static Result<std::unique_ptr<Decoder>> load(const Checkpoint& checkpoint, Dtype dtype, ThreadPool& pool,
                                               const PackOptions& options = {});
  // Random weights drawn from `seed`, the same on every machine (RandomWeights).
  static Result<std::unique_ptr<Decoder>> random(const ModelConfig& config, std::uint64_t seed, Dtype dtype,
                                                 ThreadPool& pool, const PackOptions& options = {});
  ~Decoder();

  const ModelConfig& config() const;
  Dtype dtype() const;
  kv::KvLayout kv_layout(std::uint32_t block_tokens) const;
  // Names the weights: tree hash over the tensors for a checkpoint, kind and seed for random ones.
  const std::string& weights_digest() const;
  std::size_t weight_bytes() const;  // packed

  // One pass over all chunks: writes their KV into the blocks, fills the logits asked for. A chunk's bits don't depend
  // on the other chunks nor on where a prompt was cut. `on_layer`, if given, hears of each layer, first to last, once
  // all its KV is written; on this thread.
  void forward(ThreadPool& pool, std::span<const Chunk> chunks, std::uint32_t block_tokens, Workspace& workspace,
               const std::function<void(std::size_t layer)>& on_layer = nullptr) const;

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nmc::model
