#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/kernels.h"
#include "model/checkpoint.h"
#include "model/weight_source.h"

namespace nmc::model {
namespace {

using kernels::PackedMatrix;

struct LayerWeights {
  const float* input_norm = nullptr;  // [hidden]
  const float* post_norm = nullptr;   // [hidden]
  PackedMatrix qkv;                   // [q + 2 kv][hidden]
  PackedMatrix out;                   // [hidden][q]
  PackedMatrix gate_up;               // [2 intermediate][hidden]
  PackedMatrix down;                  // [hidden][intermediate]
};

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Hands out 64-byte aligned pieces of one mapping whose size is known beforehand.
class Arena {
 public:
  static Result<Arena> create(std::size_t bytes) {
    NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::anonymous(bytes));
    return Arena(std::move(mapping));
  }
  std::byte* take(std::size_t bytes) {
    std::byte* piece = mapping_.data() + used_;
    used_ += round_up(bytes, 64);
    NMC_ASSERT(used_ <= mapping_.size(), "used={} size={}", used_, mapping_.size());
    return piece;
  }
  std::size_t size() const { return mapping_.size(); }

 private:
  explicit Arena(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
  std::size_t used_ = 0;
};

// Bytes of all packed weights of a shape, each piece rounded up as Arena does.
std::size_t arena_bytes(const ModelConfig& c, Dtype dtype) {
  const auto matrix = [&](std::size_t n, std::size_t k) { return round_up(kernels::packed_bytes(n, k, dtype), 64); };
  const std::size_t norm = round_up(c.hidden * sizeof(float), 64);
  const std::size_t layer = 2 * norm + matrix(c.q_size() + 2 * c.kv_size(), c.hidden) + matrix(c.hidden, c.q_size()) +
                            matrix(2 * c.intermediate, c.hidden) + matrix(c.hidden, c.intermediate);
  const std::size_t embedding = round_up(c.vocab * c.hidden * dtype_bytes(dtype), 64);
  return c.layers * layer + norm + embedding + matrix(c.vocab, c.hidden);
}

// One tensor among several that are stacked along their rows into one packed matrix.
struct Part {
  std::string name;
  std::size_t rows;
};

// Reads tensors of a source and lays them into the arena.
class Packer {
 public:
  Packer(WeightSource& source, Arena& arena, Dtype dtype, ThreadPool& pool)
      : source_(source), arena_(arena), dtype_(dtype), pool_(pool) {}

  Result<const float*> norm(const std::string& name, std::size_t size) {
    NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(name, 1, size));
    float* to = reinterpret_cast<float*>(arena_.take(size * sizeof(float)));
    kernels::gather_row(static_cast<const std::byte*>(weights.data), weights.dtype, 0, size, to);
    return to;
  }

  Result<PackedMatrix> matrix(std::span<const Part> parts, std::size_t columns) {
    std::size_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    PackedMatrix packed{arena_.take(kernels::packed_bytes(rows, columns, dtype_)), rows, columns, dtype_};
    NMC_ASSIGN_OR_RETURN(const Weights stacked, stack(parts, columns));
    kernels::pack_matrix(pool_, stacked.data, stacked.dtype, rows, columns, const_cast<std::byte*>(packed.data), dtype_,
                         0, rows);
    return packed;
  }
  Result<PackedMatrix> matrix(const std::string& name, std::size_t rows, std::size_t columns) {
    const Part part{name, rows};
    return matrix(std::span(&part, 1), columns);
  }

  // A row-major table in the packed dtype, for gather_row().
  Result<const std::byte*> table(const std::string& name, std::size_t rows, std::size_t columns) {
    NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(name, rows, columns));
    std::byte* to = arena_.take(rows * columns * dtype_bytes(dtype_));
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
  // The parts' rows one after another. One part is passed through; several are copied together, since a part's rows
  // need not fill whole panels.
  Result<Weights> stack(std::span<const Part> parts, std::size_t columns) {
    if (parts.size() == 1) return source_.tensor(parts[0].name, parts[0].rows, columns);
    Dtype dtype = Dtype::kF32;
    stacked_.clear();
    for (const Part& part : parts) {
      NMC_ASSIGN_OR_RETURN(const Weights weights, source_.tensor(part.name, part.rows, columns));
      if (!stacked_.empty() && weights.dtype != dtype) {
        return unsupported("tensor {}: type {} differs from {} of the tensors it is packed with", part.name,
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
  std::vector<std::byte> stacked_;
};

// A run of rows of one chunk that lie in one block: the unit in which keys are rotated and written.
struct BlockRows {
  std::size_t chunk = 0;
  std::size_t first_row = 0;  // among all rows of the pass
  std::size_t rows = 0;
  std::size_t position = 0;  // of the first row
};

}  // namespace

// ---- Workspace ------------------------------------------------------------------------------------------------------

struct Workspace::Impl {
  std::vector<float> x;         // [rows][hidden] residual stream
  std::vector<float> normed;    // [rows][hidden]
  std::vector<float> qkv;       // [rows][q + 2 kv]
  std::vector<float> attended;  // [rows][q]
  std::vector<float> gate_up;   // [rows][2 intermediate]
  std::vector<float> hidden;    // [rows][intermediate]
  std::vector<float> cos, sin;  // [rows][head_dim / 2]
  std::vector<float> logits;    // [wanted][vocab]
  std::vector<BlockRows> block_rows;
  std::vector<std::vector<std::byte*>> spans;  // per chunk: this layer's address in each block
  std::vector<kernels::AttentionTask> tasks;
};

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;

// ---- Decoder --------------------------------------------------------------------------------------------------------

struct Decoder::Impl {
  ModelConfig config;
  Dtype dtype;  // of the KV cache
  std::string digest;
  Arena arena;
  Dtype weight_dtype;
  const std::byte* embedding = nullptr;  // [vocab][hidden] of weight_dtype
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;     // [hidden]
  PackedMatrix head;                     // [vocab][hidden]
  std::vector<float> inverse_frequency;  // [head_dim / 2]

  Impl(const ModelConfig& model_config, Dtype kv_dtype, Dtype packed_dtype, Arena memory)
      : config(model_config), dtype(kv_dtype), arena(std::move(memory)), weight_dtype(packed_dtype) {}

  Result<void> pack(WeightSource& source, ThreadPool& pool);
  Result<LayerWeights> pack_layer(Packer& packer, std::size_t layer) const;
  void embed(std::span<const Chunk> chunks, Workspace::Impl& w) const;
  void prepare(std::span<const Chunk> chunks, std::uint32_t block_tokens, std::size_t rows, Workspace::Impl& w) const;
  void run_layer(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer,
                 const kernels::PagedGeometry& geometry, std::size_t rows, Workspace::Impl& w) const;
  void write_logits(ThreadPool& pool, std::span<const Chunk> chunks, Workspace::Impl& w) const;
};

Result<LayerWeights> Decoder::Impl::pack_layer(Packer& packer, std::size_t layer) const {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  LayerWeights weights;
  NMC_ASSIGN_OR_RETURN(weights.input_norm, packer.norm(prefix + "input_layernorm.weight", config.hidden));
  NMC_ASSIGN_OR_RETURN(weights.post_norm, packer.norm(prefix + "post_attention_layernorm.weight", config.hidden));
  const Part qkv[] = {{prefix + "self_attn.q_proj.weight", config.q_size()},
                      {prefix + "self_attn.k_proj.weight", config.kv_size()},
                      {prefix + "self_attn.v_proj.weight", config.kv_size()}};
  NMC_ASSIGN_OR_RETURN(weights.qkv, packer.matrix(qkv, config.hidden));
  NMC_ASSIGN_OR_RETURN(weights.out, packer.matrix(prefix + "self_attn.o_proj.weight", config.hidden, config.q_size()));
  const Part gate_up[] = {{prefix + "mlp.gate_proj.weight", config.intermediate},
                          {prefix + "mlp.up_proj.weight", config.intermediate}};
  NMC_ASSIGN_OR_RETURN(weights.gate_up, packer.matrix(gate_up, config.hidden));
  NMC_ASSIGN_OR_RETURN(weights.down,
                       packer.matrix(prefix + "mlp.down_proj.weight", config.hidden, config.intermediate));
  return weights;
}

Result<void> Decoder::Impl::pack(WeightSource& source, ThreadPool& pool) {
  Packer packer(source, arena, weight_dtype, pool);
  NMC_ASSIGN_OR_RETURN(embedding, packer.table("model.embed_tokens.weight", config.vocab, config.hidden));
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    NMC_ASSIGN_OR_RETURN(LayerWeights weights, pack_layer(packer, layer));
    layers.push_back(weights);
  }
  NMC_ASSIGN_OR_RETURN(final_norm, packer.norm("model.norm.weight", config.hidden));
  const char* head_name = config.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  NMC_ASSIGN_OR_RETURN(head, packer.matrix(head_name, config.vocab, config.hidden));
  digest = source.digest();

  // In f32 like the reference implementation, whose angles at long positions carry this rounding.
  for (std::size_t i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    inverse_frequency.push_back(1.0f / std::pow(config.rope_theta, exponent));
  }
  return {};
}

Result<std::unique_ptr<Decoder>> Decoder::create(const ModelConfig& config, WeightSource& weights, Dtype dtype,
                                                 ThreadPool& pool) {
  Dtype packed = dtype;
  if (dtype != Dtype::kF32) {  // f16 weights keep their bits
    NMC_ASSIGN_OR_RETURN(const Weights probe, weights.tensor("model.embed_tokens.weight", config.vocab, config.hidden));
    if (probe.dtype == Dtype::kF16) packed = Dtype::kF16;
  }
  NMC_ASSIGN_OR_RETURN(Arena arena, Arena::create(arena_bytes(config, packed)));
  auto impl = std::make_unique<Impl>(config, dtype, packed, std::move(arena));
  NMC_RETURN_IF_ERROR(impl->pack(weights, pool));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<std::unique_ptr<Decoder>> Decoder::load(const Checkpoint& checkpoint, Dtype dtype, ThreadPool& pool) {
  CheckpointWeights weights(checkpoint, pool);
  return create(checkpoint.config(), weights, dtype, pool);
}

Result<std::unique_ptr<Decoder>> Decoder::random(const ModelConfig& config, std::uint64_t seed, Dtype dtype,
                                                 ThreadPool& pool) {
  RandomWeights weights(seed, pool);
  return create(config, weights, dtype, pool);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
Dtype Decoder::dtype() const { return impl_->dtype; }
const std::string& Decoder::weights_digest() const { return impl_->digest; }
std::size_t Decoder::weight_bytes() const { return impl_->arena.size(); }

kv::KvLayout Decoder::kv_layout(std::uint32_t block_tokens) const {
  kv::KvLayout layout;
  layout.layers = static_cast<std::uint32_t>(impl_->config.layers);
  layout.kv_heads = static_cast<std::uint32_t>(impl_->config.kv_heads);
  layout.head_dim = static_cast<std::uint32_t>(impl_->config.head_dim);
  layout.block_tokens = block_tokens;
  layout.dtype = impl_->dtype;
  return layout;
}

void Decoder::Impl::embed(std::span<const Chunk> chunks, Workspace::Impl& w) const {
  const std::size_t half = config.head_dim / 2;
  std::size_t row = 0;
  for (const Chunk& chunk : chunks) {
    for (std::size_t i = 0; i < chunk.tokens.size(); ++i, ++row) {
      NMC_REQUIRE(chunk.tokens[i] < config.vocab, "token={} vocab={}", chunk.tokens[i], config.vocab);
      kernels::gather_row(embedding, weight_dtype, chunk.tokens[i], config.hidden, &w.x[row * config.hidden]);
      for (std::size_t k = 0; k < half; ++k) {
        const float angle = static_cast<float>(chunk.start + i) * inverse_frequency[k];
        w.cos[row * half + k] = static_cast<float>(std::cos(static_cast<double>(angle)));
        w.sin[row * half + k] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  }
}

void Decoder::Impl::prepare(std::span<const Chunk> chunks, std::uint32_t block_tokens, std::size_t rows,
                            Workspace::Impl& w) const {
  const auto grow = [](std::vector<float>& floats, std::size_t count) {
    if (floats.size() < count) floats.resize(count);
  };
  const std::size_t qkv_size = config.q_size() + 2 * config.kv_size();
  grow(w.x, rows * config.hidden);
  grow(w.normed, rows * config.hidden);
  grow(w.qkv, rows * qkv_size);
  grow(w.attended, rows * config.q_size());
  grow(w.gate_up, rows * 2 * config.intermediate);
  grow(w.hidden, rows * config.intermediate);
  grow(w.cos, rows * config.head_dim / 2);
  grow(w.sin, rows * config.head_dim / 2);

  w.block_rows.clear();
  w.tasks.clear();
  w.spans.resize(std::max(w.spans.size(), chunks.size()));
  std::size_t row = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& chunk = chunks[c];
    const std::size_t end = chunk.start + chunk.tokens.size();
    NMC_REQUIRE(!chunk.tokens.empty() && chunk.blocks.size() * block_tokens >= end, "tokens={} start={} blocks={}",
                chunk.tokens.size(), chunk.start, chunk.blocks.size());
    w.spans[c].resize(chunk.blocks.size());
    w.tasks.push_back({.q = &w.qkv[row * qkv_size],
                       .q_stride = qkv_size,
                       .out = &w.attended[row * config.q_size()],
                       .out_stride = config.q_size(),
                       .rows = chunk.tokens.size(),
                       .start = chunk.start,
                       .blocks = w.spans[c].data()});
    for (std::size_t position = chunk.start; position < end;) {
      const std::size_t take = std::min(end - position, block_tokens - position % block_tokens);
      w.block_rows.push_back({c, row, take, position});
      position += take;
      row += take;
    }
  }
}

void Decoder::Impl::run_layer(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer,
                              const kernels::PagedGeometry& geometry, std::size_t rows, Workspace::Impl& w) const {
  const LayerWeights& weights = layers[layer];
  const std::size_t q_size = config.q_size();
  const std::size_t kv_size = config.kv_size();
  const std::size_t qkv_size = q_size + 2 * kv_size;
  const std::size_t half = config.head_dim / 2;

  kernels::rms_norm(pool, w.x.data(), rows, config.hidden, weights.input_norm, config.rms_epsilon, w.normed.data());
  kernels::matmul(pool, w.normed.data(), rows, weights.qkv, w.qkv.data(), qkv_size);

  const std::size_t offset = layer * geometry.span_bytes();
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (std::size_t b = 0; b < chunks[c].blocks.size(); ++b) w.spans[c][b] = chunks[c].blocks[b] + offset;
  }
  pool.parallel_for(w.block_rows.size(), 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      const BlockRows& part = w.block_rows[i];
      for (std::size_t row = part.first_row; row < part.first_row + part.rows; ++row) {
        kernels::rope_in_place(&w.qkv[row * qkv_size], config.heads + config.kv_heads, config.head_dim,
                               &w.cos[row * half], &w.sin[row * half]);
      }
      const float* keys = &w.qkv[part.first_row * qkv_size + q_size];
      kernels::write_kv(geometry, keys, keys + kv_size, qkv_size, part.rows, part.position, w.spans[part.chunk].data());
    }
  });
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  kernels::paged_attention(pool, geometry, w.tasks, scale, 0);

  kernels::matmul(pool, w.attended.data(), rows, weights.out, w.normed.data(), config.hidden);
  kernels::add_in_place(pool, w.x.data(), w.normed.data(), rows * config.hidden);
  kernels::rms_norm(pool, w.x.data(), rows, config.hidden, weights.post_norm, config.rms_epsilon, w.normed.data());
  kernels::matmul(pool, w.normed.data(), rows, weights.gate_up, w.gate_up.data(), 2 * config.intermediate);
  kernels::silu_mul(pool, w.gate_up.data(), rows, config.intermediate, w.hidden.data());
  kernels::matmul(pool, w.hidden.data(), rows, weights.down, w.normed.data(), config.hidden);
  kernels::add_in_place(pool, w.x.data(), w.normed.data(), rows * config.hidden);
}

void Decoder::Impl::write_logits(ThreadPool& pool, std::span<const Chunk> chunks, Workspace::Impl& w) const {
  // The last rows that are wanted move together at the front of `normed`, so that the head runs once over all of them.
  std::size_t wanted = 0;
  std::size_t row = 0;
  for (const Chunk& chunk : chunks) {
    row += chunk.tokens.size();
    if (chunk.logits == nullptr) continue;
    kernels::rms_norm(pool, &w.x[(row - 1) * config.hidden], 1, config.hidden, final_norm, config.rms_epsilon,
                      &w.normed[wanted * config.hidden]);
    ++wanted;
  }
  if (wanted == 0) return;
  if (w.logits.size() < wanted * config.vocab) w.logits.resize(wanted * config.vocab);
  kernels::matmul(pool, w.normed.data(), wanted, head, w.logits.data(), config.vocab);
  std::size_t next = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.logits == nullptr) continue;
    std::memcpy(chunk.logits, &w.logits[next * config.vocab], config.vocab * sizeof(float));
    ++next;
  }
}

void Decoder::forward(ThreadPool& pool, std::span<const Chunk> chunks, std::uint32_t block_tokens,
                      Workspace& workspace) const {
  Workspace::Impl& w = *workspace.impl_;
  std::size_t rows = 0;
  for (const Chunk& chunk : chunks) rows += chunk.tokens.size();
  if (rows == 0) return;
  const kernels::PagedGeometry geometry{.heads = impl_->config.heads,
                                        .kv_heads = impl_->config.kv_heads,
                                        .head_dim = impl_->config.head_dim,
                                        .block_tokens = block_tokens,
                                        .dtype = impl_->dtype};
  impl_->prepare(chunks, block_tokens, rows, w);
  impl_->embed(chunks, w);
  for (std::size_t layer = 0; layer < impl_->layers.size(); ++layer) {
    impl_->run_layer(pool, chunks, layer, geometry, rows, w);
  }
  impl_->write_logits(pool, chunks, w);
}

}  // namespace nmc::model
