#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/kernels.h"
#include "model/adapter.h"
#include "model/checkpoint.h"
#include "model/decoder_weights.h"
#include "model/rope.h"
#include "model/weight_source.h"

namespace nmc::model {
namespace {

void grow(std::vector<float>& floats, std::size_t count) {
  if (floats.size() < count) floats.resize(count);
}

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
  std::vector<float> low_rank;  // [rows][rank of an adapter]
  std::vector<float> added;     // [rows][outputs of a projection]: what an adapter adds
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
  DecoderWeights weights;
  std::vector<float> inverse_frequency;  // [head_dim / 2]

  void embed(std::span<const Chunk> chunks, Workspace::Impl& w) const;
  void prepare(std::span<const Chunk> chunks, std::uint32_t block_tokens, std::size_t rows, Workspace::Impl& w) const;
  static void add_adapted(ThreadPool& pool, const std::vector<Adapter::LowRank>& parts, const float* x,
                          std::size_t rows, float* y, std::size_t y_stride, Workspace::Impl& w);
  void project(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer, Product product, const float* x,
               std::size_t rows, float* y, Workspace::Impl& w) const;
  void run_layer(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer,
                 const kernels::PagedGeometry& geometry, std::size_t rows, Workspace::Impl& w) const;
  void write_logits(ThreadPool& pool, std::span<const Chunk> chunks, Workspace::Impl& w) const;
};

Result<std::unique_ptr<Decoder>> Decoder::create(const ModelConfig& config, WeightSource& source, Dtype dtype,
                                                 ThreadPool& pool, const PackOptions& options) {
  NMC_ASSIGN_OR_RETURN(DecoderWeights weights, DecoderWeights::pack(config, source, dtype, pool, options));
  auto impl = std::make_unique<Impl>(Impl{config, dtype, std::move(weights), inverse_frequencies(config)});
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<std::unique_ptr<Decoder>> Decoder::load(const Checkpoint& checkpoint, Dtype dtype, ThreadPool& pool,
                                               const PackOptions& options) {
  CheckpointWeights weights(checkpoint, pool);
  return create(checkpoint.config(), weights, dtype, pool, options);
}

Result<std::unique_ptr<Decoder>> Decoder::random(const ModelConfig& config, std::uint64_t seed, Dtype dtype,
                                                 ThreadPool& pool, const PackOptions& options) {
  RandomWeights weights(seed, pool);
  return create(config, weights, dtype, pool, options);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
Dtype Decoder::dtype() const { return impl_->dtype; }
const std::string& Decoder::weights_digest() const { return impl_->weights.digest; }
std::size_t Decoder::weight_bytes() const { return impl_->weights.bytes(); }

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
      kernels::gather_row(weights.embedding, weights.dtype, chunk.tokens[i], config.hidden, &w.x[row * config.hidden]);
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

// Adds what the adapter makes of `rows` rows of x to those of y, `y_stride` floats apart.
void Decoder::Impl::add_adapted(ThreadPool& pool, const std::vector<Adapter::LowRank>& parts, const float* x,
                                std::size_t rows, float* y, std::size_t y_stride, Workspace::Impl& w) {
  for (const Adapter::LowRank& part : parts) {
    grow(w.low_rank, rows * part.down.n);
    grow(w.added, rows * part.up.n);
    kernels::matmul(pool, x, rows, part.down, w.low_rank.data(), part.down.n);
    kernels::matmul(pool, w.low_rank.data(), rows, part.up, w.added.data(), part.up.n);
    kernels::add_rows(pool, y + part.column, y_stride, w.added.data(), rows, part.up.n);
  }
}

void Decoder::Impl::project(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer, Product product,
                            const float* x, std::size_t rows, float* y, Workspace::Impl& w) const {
  const Projection& projection = weights.layers[layer].projection(product);
  const kernels::PackedMatrix& matrix = projection.matrix;
  kernels::matmul(pool, x, rows, matrix, y, matrix.n);
  if (projection.bias != nullptr) kernels::add_bias(pool, y, rows, matrix.n, projection.bias);
  // Neighbours with the same adapter go through it together.
  std::size_t row = 0;
  for (std::size_t c = 0; c < chunks.size();) {
    const Adapter* const adapter = chunks[c].adapter;
    const std::size_t first = row;
    for (; c < chunks.size() && chunks[c].adapter == adapter; ++c) row += chunks[c].tokens.size();
    if (adapter == nullptr) continue;
    add_adapted(pool, adapter->parts(layer, product), x + first * matrix.k, row - first, y + first * matrix.n, matrix.n,
                w);
  }
}

void Decoder::Impl::run_layer(ThreadPool& pool, std::span<const Chunk> chunks, std::size_t layer,
                              const kernels::PagedGeometry& geometry, std::size_t rows, Workspace::Impl& w) const {
  const LayerWeights& layer_weights = weights.layers[layer];
  const std::size_t q_size = config.q_size();
  const std::size_t kv_size = config.kv_size();
  const std::size_t qkv_size = q_size + 2 * kv_size;
  const std::size_t half = config.head_dim / 2;

  kernels::rms_norm(pool, w.x.data(), rows, config.hidden, layer_weights.input_norm, config.rms_epsilon,
                    w.normed.data());
  project(pool, chunks, layer, Product::kQkv, w.normed.data(), rows, w.qkv.data(), w);

  const std::size_t offset = layer * geometry.span_bytes();
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (std::size_t b = 0; b < chunks[c].blocks.size(); ++b) w.spans[c][b] = chunks[c].blocks[b] + offset;
  }
  pool.parallel_for(w.block_rows.size(), 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      const BlockRows& part = w.block_rows[i];
      for (std::size_t row = part.first_row; row < part.first_row + part.rows; ++row) {
        float* const queries = &w.qkv[row * qkv_size];
        if (config.qk_norm) {
          kernels::rms_norm_heads(queries, config.heads, config.head_dim, layer_weights.q_norm, config.rms_epsilon);
          kernels::rms_norm_heads(queries + q_size, config.kv_heads, config.head_dim, layer_weights.k_norm,
                                  config.rms_epsilon);
        }
        kernels::rope_in_place(queries, config.heads + config.kv_heads, config.head_dim, &w.cos[row * half],
                               &w.sin[row * half]);
      }
      const float* keys = &w.qkv[part.first_row * qkv_size + q_size];
      kernels::write_kv(geometry, keys, keys + kv_size, qkv_size, part.rows, part.position, w.spans[part.chunk].data());
    }
  });
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  kernels::paged_attention(pool, geometry, w.tasks, scale, config.window(layer));

  project(pool, chunks, layer, Product::kOut, w.attended.data(), rows, w.normed.data(), w);
  kernels::add_in_place(pool, w.x.data(), w.normed.data(), rows * config.hidden);
  kernels::rms_norm(pool, w.x.data(), rows, config.hidden, layer_weights.post_norm, config.rms_epsilon,
                    w.normed.data());
  project(pool, chunks, layer, Product::kGateUp, w.normed.data(), rows, w.gate_up.data(), w);
  kernels::silu_mul(pool, w.gate_up.data(), rows, config.intermediate, w.hidden.data());
  project(pool, chunks, layer, Product::kDown, w.hidden.data(), rows, w.normed.data(), w);
  kernels::add_in_place(pool, w.x.data(), w.normed.data(), rows * config.hidden);
}

void Decoder::Impl::write_logits(ThreadPool& pool, std::span<const Chunk> chunks, Workspace::Impl& w) const {
  // The rows that are wanted move together at the front of `normed`, so that the head runs once over all of them.
  std::size_t wanted = 0;
  std::size_t row = 0;
  for (const Chunk& chunk : chunks) {
    row += chunk.tokens.size();
    if (chunk.logits == nullptr) continue;
    kernels::rms_norm(pool, &w.x[(row - chunk.logit_rows) * config.hidden], chunk.logit_rows, config.hidden,
                      weights.final_norm, config.rms_epsilon, &w.normed[wanted * config.hidden]);
    wanted += chunk.logit_rows;
  }
  if (wanted == 0) return;
  grow(w.logits, wanted * config.vocab);
  kernels::matmul(pool, w.normed.data(), wanted, weights.head, w.logits.data(), config.vocab);
  const float* next = w.logits.data();
  for (const Chunk& chunk : chunks) {
    if (chunk.logits == nullptr) continue;
    std::memcpy(chunk.logits, next, chunk.logit_rows * config.vocab * sizeof(float));
    next += chunk.logit_rows * config.vocab;
  }
}

void Decoder::forward(ThreadPool& pool, std::span<const Chunk> chunks, std::uint32_t block_tokens, Workspace& workspace,
                      const std::function<void(std::size_t layer)>& on_layer) const {
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
  for (std::size_t layer = 0; layer < impl_->weights.layers.size(); ++layer) {
    impl_->run_layer(pool, chunks, layer, geometry, rows, w);
    if (on_layer) on_layer(layer);
  }
  impl_->write_logits(pool, chunks, w);
}

}  // namespace nmc::model
