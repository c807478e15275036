// A decoder's shape and weights out of a GGUF file of the Llama, Mistral (which calls itself llama), Qwen2 and Qwen3
// shapes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/weight_source.h"

namespace nmc::model {

// Immutable after open(); thread-safe.
class GgufFile {
 public:
  // Maps and parses; checks that every tensor a model of its shape needs is there, with its shape and a type we read,
  // and no other.
  static Result<GgufFile> open(const Path& path);

  const Path& path() const { return path_; }
  const GgufHeader& header() const { return header_; }
  const ModelConfig& config() const { return config_; }
  std::span<const std::byte> bytes(const GgufTensor& tensor) const {
    return mapping_.bytes().subspan(tensor.offset, tensor.bytes);
  }

 private:
  GgufFile() = default;
  Result<void> validate() const;

  Path path_;
  Mapping mapping_;
  GgufHeader header_;
  ModelConfig config_;
};

// Metadata to a shape. `path` names the file in messages.
Result<ModelConfig> gguf_config(const GgufHeader& header, std::string_view path);

// Tensors under the names of Hugging Face's checkpoints. Quantised ones come as f32, others as they are. llama.cpp
// keeps the rows of Llama's queries and keys in pairs of the dimensions that are rotated together: here they come in
// Hugging Face's order, halves first. The file must outlive it.
class GgufWeights final : public WeightSource {
 public:
  GgufWeights(const GgufFile& file, ThreadPool& pool) : file_(file), pool_(pool) {}
  Result<Weights> tensor(const std::string& name, std::size_t rows, std::size_t columns) override;
  std::string digest() override;

 private:
  const GgufFile& file_;
  ThreadPool& pool_;
  std::vector<std::byte> buffer_;
};

}  // namespace nmc::model
