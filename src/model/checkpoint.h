// A Hugging Face checkpoint folder: config.json and model.safetensors, or model.safetensors.index.json with its shards.
// open() checks everything that can be known without reading the weights, so that a broken folder is refused before
// anything is served.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/generation_defaults.h"
#include "model/safetensors_file.h"

namespace nmc::model {

// A view into a Checkpoint, which must outlive it. `bytes` are row-major and aligned to the element.
struct TensorView {
  std::span<const std::byte> bytes;
  Dtype dtype = Dtype::kF32;
  std::span<const std::uint64_t> shape;
};

struct ExpectedTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

// Every tensor that a model of this shape needs, by layer. The output projection is left out when it is tied.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Immutable after open(); thread-safe.
class Checkpoint {
 public:
  // Reads config.json (and generation_config.json, whose eos ids win, as in transformers), maps the files, checks that
  // index and shards agree and calls validate(config()). One error names every missing, double or misshaped tensor, up
  // to a bounded number.
  static Result<Checkpoint> open(const Path& folder);

  const Path& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }

  const GenerationDefaults& defaults() const { return defaults_; }

  // Fails when the tensor is absent, has another shape or a type we don't compute with; the message names the file.
  Result<TensorView> tensor(std::string_view name, std::initializer_list<std::uint64_t> shape) const;
  Result<TensorView> tensor(std::string_view name, std::span<const std::uint64_t> shape) const;
  bool has(std::string_view name) const { return tensors_.contains(name); }

  // Every tensor of expected_tensors(config) is there with its shape and a type we compute with, and no other: a bias
  // we don't add would otherwise be dropped in silence. Buffers that older exports carry (rotary inv_freq) and an
  // output projection of a tied model are let pass.
  Result<void> validate(const ModelConfig& config) const;

  // Bytes of all tensors.
  std::uint64_t weight_bytes() const;

  // Identity of the weights (model/weights_digest.h), the same however they are cut into files. Reads every byte.
  Digest weights_digest(ThreadPool& pool) const;

 private:
  struct Place {
    std::size_t file = 0;   // index in files_
    std::size_t index = 0;  // index in its header's tensors
  };

  Checkpoint() = default;
  Result<void> open_single(const Path& path);
  Result<void> open_sharded(const Path& index_path);
  const TensorInfo& info(const Place& place) const { return files_[place.file].header().tensors[place.index]; }

  Path folder_;
  ModelConfig config_;
  GenerationDefaults defaults_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> tensors_;
};

}  // namespace nmc::model
