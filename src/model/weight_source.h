// Where a decoder's weights come from while they are packed: a checkpoint's tensors or numbers drawn from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/config.h"

namespace nmc::model {

class Checkpoint;

// Row-major [rows][columns]; vectors have one row.
struct Weights {
  const void* data = nullptr;
  Dtype dtype = Dtype::kF32;
};

// Not thread-safe. Tensors are named as in Hugging Face's checkpoints.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Valid until the next call.
  virtual Result<Weights> tensor(const std::string& name, std::size_t rows, std::size_t columns) = 0;
  // Equal digests mean equal tensors.
  virtual std::string digest() = 0;
};

// Borrowed parts must outlive it.
class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const Checkpoint& checkpoint, ThreadPool& pool) : checkpoint_(checkpoint), pool_(pool) {}
  Result<Weights> tensor(const std::string& name, std::size_t rows, std::size_t columns) override;
  std::string digest() override;

 private:
  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
};

// Nearly normal numbers of variance 1 / columns (so that activations keep their size), biases of
// deviation 1/4, norms 1; the same on every machine, whatever was asked for before.
class RandomWeights final : public WeightSource {
 public:
  // Called for each element after it was drawn, to shape what a model says; null: leave as drawn. `kind` names the
  // adjustment in the digest.
  using Adjust = std::function<float(std::string_view name, std::size_t row, std::size_t column, float drawn)>;

  RandomWeights(std::uint64_t seed, ThreadPool& pool, Adjust adjust = nullptr, std::string kind = "random")
      : seed_(seed), pool_(pool), adjust_(std::move(adjust)), kind_(std::move(kind)) {}
  Result<Weights> tensor(const std::string& name, std::size_t rows, std::size_t columns) override;
  std::string digest() override;

 private:
  std::uint64_t seed_;
  ThreadPool& pool_;
  Adjust adjust_;
  std::string kind_;
  std::vector<float> buffer_;
};

}  // namespace nmc::model
