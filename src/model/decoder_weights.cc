#include "model/decoder_weights.h"

#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/cache_folder.h"

namespace nmc::model {
namespace {

using kernels::PackedMatrix;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// What a file of packed weights begins with.
struct SharedHeader {
  std::array<char, 8> magic = {'N', 'M', 'C', 'P', 'A', 'C', 'K', '\n'};
  std::uint32_t version = 1;
  std::uint32_t dtype = 0;            // of the matrices
  std::uint64_t bytes = 0;            // of the file
  Digest layout;                      // what else shapes it: the config, kernels' instruction level and numerics
  std::uint32_t digest_bytes = 0;     // of the weights' digest
  std::array<char, 512> digest = {};  // its text
  std::uint32_t complete = 0;         // 1, stored last
};
constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(SharedHeader) <= kHeaderBytes);

Digest shared_layout(const ModelConfig& config) {
  return sha256(
      fmt::format("{}\n{}\n{}", config.digest_text(), kernels::instruction_level(), kernels::kNumericsVersion));
}

// Hands out 64-byte aligned pieces of memory whose size is known beforehand.
class Arena {
 public:
  Arena(Mapping& memory, std::size_t from) : memory_(memory), used_(from) {}

  std::byte* take(std::size_t bytes) {
    std::byte* piece = memory_.data() + used_;
    used_ += round_up(bytes, 64);
    NMC_ASSERT(used_ <= memory_.size(), "used={} size={}", used_, memory_.size());
    return piece;
  }

 private:
  Mapping& memory_;
  std::size_t used_;
};

// Bytes of all packed weights of a shape, each piece rounded up as Arena does.
std::size_t packed_weight_bytes(const ModelConfig& c, Dtype dtype) {
  const auto matrix = [&](std::size_t n, std::size_t k) { return round_up(kernels::packed_bytes(n, k, dtype), 64); };
  const auto vector = [](std::size_t size) { return round_up(size * sizeof(float), 64); };
  const std::size_t norm = vector(c.hidden);
  const std::size_t head_norms = c.qk_norm ? 2 * vector(c.head_dim) : 0;
  const std::size_t biases = (c.qkv_bias ? vector(c.q_size() + 2 * c.kv_size()) : 0) + (c.out_bias ? norm : 0) +
                             (c.mlp_bias ? vector(2 * c.intermediate) + norm : 0);
  const std::size_t layer = 2 * norm + head_norms + biases + matrix(c.q_size() + 2 * c.kv_size(), c.hidden) +
                            matrix(c.hidden, c.q_size()) + matrix(2 * c.intermediate, c.hidden) +
                            matrix(c.hidden, c.intermediate);
  const std::size_t embedding = round_up(c.vocab * c.hidden * dtype_bytes(dtype), 64);
  return c.layers * layer + norm + embedding + matrix(c.vocab, c.hidden);
}

// One projection of a checkpoint among several that are stacked along their rows into one packed matrix.
struct Part {
  std::string name;  // without ".weight" or ".bias"
  std::size_t rows;
};

// Reads tensors of a source and lays them into the arena; where they lie there already, says where.
class Packer {
 public:
  Packer(WeightSource& source, Arena& arena, Dtype dtype, ThreadPool& pool, bool filled)
      : source_(source), arena_(arena), dtype_(dtype), pool_(pool), filled_(filled) {}

  Result<const float*> norm(const std::string& name, std::size_t size) {
    float* to = take_floats(size);
    NMC_RETURN_IF_ERROR(read_vector(name, size, to));
    return to;
  }

  Result<Projection> projection(std::span<const Part> parts, std::size_t columns, bool has_bias) {
    Projection projection;
    NMC_ASSIGN_OR_RETURN(projection.matrix, matrix(parts, columns));
    if (!has_bias) return projection;
    float* const bias = take_floats(projection.matrix.n);
    std::size_t at = 0;
    for (const Part& part : parts) {
      NMC_RETURN_IF_ERROR(read_vector(part.name + ".bias", part.rows, bias + at));
      at += part.rows;
    }
    projection.bias = bias;
    return projection;
  }

  Result<PackedMatrix> matrix(std::span<const Part> parts, std::size_t columns) {
    std::size_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    PackedMatrix packed{arena_.take(kernels::packed_bytes(rows, columns, dtype_)), rows, columns, dtype_};
    if (filled_) return packed;
    NMC_ASSIGN_OR_RETURN(const Weights stacked, stack(parts, columns));
    kernels::pack_matrix(pool_, stacked.data, stacked.dtype, rows, columns, const_cast<std::byte*>(packed.data), dtype_,
                         0, rows);
    return packed;
  }

  // A row-major table in the packed dtype, for gather_row().
  Result<const std::byte*> table(const std::string& name, std::size_t rows, std::size_t columns) {
    std::byte* to = arena_.take(rows * columns * dtype_bytes(dtype_));
    if (filled_) return to;
    NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(name, rows, columns));
    const auto* from = static_cast<const std::byte*>(weights.data);
    if (weights.dtype == dtype_) {
      std::memcpy(to, from, rows * columns * dtype_bytes(dtype_));
      return to;
    }
    pool_.parallel_for(rows, 256, [&](std::size_t begin, std::size_t end, int) {
      std::vector<float> row(columns);
      for (std::size_t r = begin; r < end; ++r) {
        kernels::gather_row(from, weights.dtype, r, columns, row.data());
        narrow(row, to + r * columns * dtype_bytes(dtype_));
      }
    });
    return to;
  }

 private:
  float* take_floats(std::size_t count) { return reinterpret_cast<float*>(arena_.take(count * sizeof(float))); }

  Result<void> read_vector(const std::string& name, std::size_t size, float* to) {
    if (filled_) return {};
    NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(name, 1, size));
    kernels::gather_row(static_cast<const std::byte*>(weights.data), weights.dtype, 0, size, to);
    return {};
  }

  // The parts' rows one after another. One part is passed through; several are copied together, since a part's rows
  // need not fill whole panels.
  Result<Weights> stack(std::span<const Part> parts, std::size_t columns) {
    if (parts.size() == 1) return source_.tensor(parts[0].name + ".weight", parts[0].rows, columns);
    Dtype dtype = Dtype::kF32;
    stacked_.clear();
    for (const Part& part : parts) {
      NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(part.name + ".weight", part.rows, columns));
      if (!stacked_.empty() && weights.dtype != dtype) {
        return unsupported("tensor {}.weight: type {} differs from {} of the tensors it is packed with", part.name,
                           dtype_name(weights.dtype), dtype_name(dtype));
      }
      dtype = weights.dtype;
      const auto* bytes = static_cast<const std::byte*>(weights.data);
      stacked_.insert(stacked_.end(), bytes, bytes + part.rows * columns * dtype_bytes(dtype));
    }
    return Weights{stacked_.data(), dtype};
  }

  void narrow(std::span<const float> row, std::byte* to) const {
    if (dtype_ == Dtype::kF32) {
      std::memcpy(to, row.data(), row.size_bytes());
      return;
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t bits = dtype_ == Dtype::kBf16 ? bf16_from_f32(row[i]) : f16_from_f32(row[i]);
      std::memcpy(to + 2 * i, &bits, 2);
    }
  }

  WeightSource& source_;
  Arena& arena_;
  Dtype dtype_;
  ThreadPool& pool_;
  const bool filled_;
  std::vector<std::byte> stacked_;
};

Result<LayerWeights> pack_layer(const ModelConfig& config, std::size_t layer, Packer& packer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  LayerWeights weights;
  NMC_ASSIGN_OR_RETURN(weights.input_norm, packer.norm(prefix + "input_layernorm.weight", config.hidden));
  NMC_ASSIGN_OR_RETURN(weights.post_norm, packer.norm(prefix + "post_attention_layernorm.weight", config.hidden));
  if (config.qk_norm) {
    NMC_ASSIGN_OR_RETURN(weights.q_norm, packer.norm(attention + "q_norm.weight", config.head_dim));
    NMC_ASSIGN_OR_RETURN(weights.k_norm, packer.norm(attention + "k_norm.weight", config.head_dim));
  }
  const Part qkv[] = {{attention + "q_proj", config.q_size()},
                      {attention + "k_proj", config.kv_size()},
                      {attention + "v_proj", config.kv_size()}};
  NMC_ASSIGN_OR_RETURN(weights.projections[index_of(Product::kQkv)],
                       packer.projection(qkv, config.hidden, config.qkv_bias));
  const Part out[] = {{attention + "o_proj", config.hidden}};
  NMC_ASSIGN_OR_RETURN(weights.projections[index_of(Product::kOut)],
                       packer.projection(out, config.q_size(), config.out_bias));
  const Part gate_up[] = {{mlp + "gate_proj", config.intermediate}, {mlp + "up_proj", config.intermediate}};
  NMC_ASSIGN_OR_RETURN(weights.projections[index_of(Product::kGateUp)],
                       packer.projection(gate_up, config.hidden, config.mlp_bias));
  const Part down[] = {{mlp + "down_proj", config.hidden}};
  NMC_ASSIGN_OR_RETURN(weights.projections[index_of(Product::kDown)],
                       packer.projection(down, config.intermediate, config.mlp_bias));
  return weights;
}

Result<Mapping> memory_for(std::size_t bytes, const PackOptions& options) {
  if (bytes <= options.in_memory_max) return Mapping::anonymous(bytes);
  Path folder = options.folder;
  if (folder.empty()) {
    NMC_ASSIGN_OR_RETURN(folder, cache_folder());
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Failure(os_error("create", folder.string(), error.value()));
  }
  log_info("weights: {} bytes are more than {} and are packed into a file in {}", bytes, options.in_memory_max,
           folder.string());
  return Mapping::nameless_file(folder.string(), bytes);
}

// Mapped as its maker left it.
Result<Mapping> open_shared(const ModelConfig& config, const Path& file, SharedHeader& header) {
  NMC_ASSIGN_OR_RETURN(Mapping memory, map_file(file));
  if (memory.size() < kHeaderBytes) return corrupt("packed weights {}: {} bytes", file.string(), memory.size());
  std::memcpy(&header, memory.data(), sizeof header);
  const SharedHeader ours;
  if (header.magic != ours.magic || header.version != ours.version || header.layout != shared_layout(config) ||
      header.dtype > static_cast<std::uint32_t>(Dtype::kF16))
    return version_mismatch("packed weights {}: of another model, release or machine", file.string());
  const std::size_t expected = kHeaderBytes + packed_weight_bytes(config, static_cast<Dtype>(header.dtype));
  if (header.complete != 1 || header.bytes != memory.size() || memory.size() != expected ||
      header.digest_bytes > header.digest.size())
    return corrupt("packed weights {}: {} bytes, expected {}", file.string(), memory.size(), expected);
  return memory;
}

void write_header(const ModelConfig& config, const DecoderWeights& weights, Mapping& memory) {
  NMC_REQUIRE(weights.digest.size() <= SharedHeader().digest.size(), "digest={}", weights.digest);
  SharedHeader header;
  header.dtype = static_cast<std::uint32_t>(weights.dtype);
  header.bytes = memory.size();
  header.layout = shared_layout(config);
  header.digest_bytes = static_cast<std::uint32_t>(weights.digest.size());
  std::memcpy(header.digest.data(), weights.digest.data(), weights.digest.size());
  header.complete = 1;
  std::memcpy(memory.data(), &header, sizeof header);
}

}  // namespace

Result<DecoderWeights> DecoderWeights::pack(const ModelConfig& config, WeightSource& source, Dtype dtype,
                                            ThreadPool& pool, const PackOptions& options) {
  using Share = PackOptions::Share;
  const bool filled = options.share == Share::kMap;
  SharedHeader header;
  Mapping memory;
  if (filled) {
    NMC_ASSIGN_OR_RETURN(memory, open_shared(config, options.shared_file, header));
    const auto packed = static_cast<Dtype>(header.dtype);
    if (packed != dtype && !(packed == Dtype::kF16 && dtype == Dtype::kBf16))
      return version_mismatch("packed weights {}: of {}, expected {}", options.shared_file.string(), dtype_name(packed),
                              dtype_name(dtype));
    dtype = packed;
  } else {
    if (dtype != Dtype::kF32) {  // f16 weights keep their bits
      NMC_ASSIGN_OR_RETURN(const Weights probe,
                           source.tensor("model.embed_tokens.weight", config.vocab, config.hidden));
      if (probe.dtype == Dtype::kF16) dtype = Dtype::kF16;
    }
    const std::size_t bytes = packed_weight_bytes(config, dtype);
    if (options.share == Share::kMake) {
      NMC_ASSIGN_OR_RETURN(memory, Mapping::new_file(options.shared_file.string(), kHeaderBytes + bytes));
    } else {
      NMC_ASSIGN_OR_RETURN(memory, memory_for(bytes, options));
    }
  }
  DecoderWeights weights(std::move(memory));
  weights.dtype = dtype;
  Arena arena(weights.memory_, options.share == Share::kNo ? 0 : kHeaderBytes);
  Packer packer(source, arena, dtype, pool, filled);
  NMC_ASSIGN_OR_RETURN(weights.embedding, packer.table("model.embed_tokens.weight", config.vocab, config.hidden));
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    NMC_ASSIGN_OR_RETURN(LayerWeights packed, pack_layer(config, layer, packer));
    weights.layers.push_back(packed);
  }
  NMC_ASSIGN_OR_RETURN(weights.final_norm, packer.norm("model.norm.weight", config.hidden));
  const Part head[] = {{config.tie_embeddings ? "model.embed_tokens" : "lm_head", config.vocab}};
  NMC_ASSIGN_OR_RETURN(weights.head, packer.matrix(head, config.hidden));
  weights.digest = filled ? std::string(header.digest.data(), header.digest_bytes) : source.digest();
  if (options.share == Share::kMake) write_header(config, weights, weights.memory_);
  return weights;
}

}  // namespace nmc::model
