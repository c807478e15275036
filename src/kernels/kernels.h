// The arithmetic of a decoder step on f32 activations, dispatched at run time to the widest instructions of the CPU.
//
// Batch invariance: the bits of a row's result depend only on that row and the weights (or its own KV blocks), never on
// how many rows a call has, which rows they are, how a prompt was cut in chunks, or how many threads work. Each output
// element is one chain of f32 fused multiply-adds in the order of the reduced index, whatever the tile shape.
// All functions are thread-safe: they share nothing but the pool. Only matmul and paged_attention allocate: each thread
// keeps a scratch that grows to what the largest call needed (matmul 240 rows of x on the calling thread; a few hundred
// KiB for others).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/thread_pool.h"

namespace nmc::kernels {

// Raised whenever the bits of any result can change; part of the KV namespace.
inline constexpr std::uint32_t kNumericsVersion = 1;

// Name of the instruction set the dispatcher uses on this CPU ("AVX3_DL", "AVX2", ...); part of the KV namespace.
std::string instruction_level();

// ---- Products -------------------------------------------------------------------------------------------------------

// Weights W[n][k] (row-major, as checkpoints have them) repacked into panels of kPanelColumns output columns:
// [n / kPanelColumns][k][kPanelColumns], the last panel padded with zeros. Elements stay 16-bit (or f32) and are
// widened in registers. A view: the packed bytes belong to whoever allocated them and must outlive it, 64-byte aligned.
inline constexpr std::size_t kPanelColumns = 32;

struct PackedMatrix {
  const std::byte* data = nullptr;
  std::size_t n = 0;  // output columns
  std::size_t k = 0;  // reduced index
  Dtype dtype = Dtype::kBf16;
};

std::size_t packed_bytes(std::size_t n, std::size_t k, Dtype dtype);

// Packs `w` ([n][k] of `from`) to `to` (packed_bytes(n, k, dtype) bytes). Conversion rounds to nearest even. f16 to
// bf16 is allowed but loses bits; callers keep f16 panels for f16 checkpoints. `column_offset` lets several checkpoint
// tensors share one packed matrix of `n_total` columns (q, k and v; gate and up); it and n are multiples of
// kPanelColumns in that case, or n is the last part.
void pack_matrix(ThreadPool& pool, const void* w, Dtype from, std::size_t n, std::size_t k, std::byte* to, Dtype dtype,
                 std::size_t column_offset, std::size_t n_total);

// y[rows][n] = x[rows][k] * W^T. y has row stride `y_stride` floats (>= n); x has row stride k. May not alias.
void matmul(ThreadPool& pool, const float* x, std::size_t rows, const PackedMatrix& w, float* y, std::size_t y_stride);

// Which inner kernel `rows` rows use, for benchmarks and for tests that must cross every tile: "avx3_bf16_direct1"
// reads x where it lies, "avx3_bf16_tile11x3" packs it in 3 tiles of at most 11 rows, "..x5" makes 5 passes over w.
std::string matmul_kernel_name(std::size_t rows, Dtype dtype);

// ---- Elementwise and norms ------------------------------------------------------------------------------------------

// out[r] = x[r] / rms(x[r]) * weight; rows of `dim` floats. out may be x.
void rms_norm(ThreadPool& pool, const float* x, std::size_t rows, std::size_t dim, const float* weight, float epsilon,
              float* out);

// The same for one row of `heads` vectors of `head_dim`, each normed by itself, in place; `weight` has head_dim floats.
void rms_norm_heads(float* x, std::size_t heads, std::size_t head_dim, const float* weight, float epsilon);

// x[r] += bias; rows of `dim` floats.
void add_bias(ThreadPool& pool, float* x, std::size_t rows, std::size_t dim, const float* bias);

// x[r] += y[r]; `dim` floats of each row, rows of x `x_stride` (>= dim) floats apart, those of y dim.
void add_rows(ThreadPool& pool, float* x, std::size_t x_stride, const float* y, std::size_t rows, std::size_t dim);

// x += y over `count` floats.
void add_in_place(ThreadPool& pool, float* x, const float* y, std::size_t count);

// out[r][i] = silu(gate_up[r][i]) * gate_up[r][dim + i]; gate_up rows have 2 * dim floats, out rows dim.
void silu_mul(ThreadPool& pool, const float* gate_up, std::size_t rows, std::size_t dim, float* out);

// Row `id` of a table of `dim`-wide rows, widened to f32.
void gather_row(const std::byte* table, Dtype dtype, std::size_t id, std::size_t dim, float* out);

// Rotary embedding in the half-split form of Hugging Face's Llama: element i pairs with i + head_dim / 2.
// x: one row of `heads` vectors of head_dim; cos, sin: head_dim / 2 values of this row's position.
void rope_in_place(float* x, std::size_t heads, std::size_t head_dim, const float* cos, const float* sin);

// ---- Paged attention ------------------------------------------------------------------------------------------------

// One layer of a KV block ("span") is K then V:
//   K [kv_heads][head_dim][block_tokens]   transposed, so that the scores of a block's tokens are one vector
//   V [kv_heads][block_tokens][head_dim]
struct PagedGeometry {
  std::size_t heads = 0;  // query heads; a multiple of kv_heads
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t block_tokens = 0;
  Dtype dtype = Dtype::kBf16;  // of the cache
  std::size_t span_bytes() const { return 2 * kv_heads * head_dim * block_tokens * dtype_bytes(dtype); }
};

// Writes K and V of `rows` consecutive positions from `start` into the blocks, rounded to the cache's dtype.
// k, v: [rows] rows with stride `row_stride` floats, kv_heads * head_dim used. blocks[b] is the address of the span
// that holds positions b * block_tokens and on.
void write_kv(const PagedGeometry& geometry, const float* k, const float* v, std::size_t row_stride, std::size_t rows,
              std::size_t start, std::byte* const* blocks);

// Rows of one sequence: queries of positions start .. start + rows - 1, each attending to itself and all before it.
struct AttentionTask {
  const float* q = nullptr;  // [rows], stride q_stride floats, heads * head_dim used; rotary applied
  std::size_t q_stride = 0;
  float* out = nullptr;  // [rows], stride out_stride floats, heads * head_dim used
  std::size_t out_stride = 0;
  std::size_t rows = 0;
  std::size_t start = 0;
  std::byte* const* blocks =
      nullptr;  // addresses of this layer's spans, (start + rows + block_tokens - 1) / block_tokens
};

// softmax(q K^T * scale) V per head over the cache in f32, reduced over units of 128 positions (counted from 0,
// whatever the block size), which are joined in order. `window` > 0 masks keys more than window - 1 positions back.
// Positions past a row's own are never read into the result, whatever bytes the block holds there.
void paged_attention(ThreadPool& pool, const PagedGeometry& geometry, std::span<const AttentionTask> tasks, float scale,
                     std::size_t window);

// ---- Sampling -------------------------------------------------------------------------------------------------------

// Index of the largest value; the lowest index among equals. NaN is never chosen unless all are NaN (then 0).
std::size_t argmax(std::span<const float> values);

// ---- The machine's limits, for benchmarks
// -----------------------------------------------------------------------------

struct MachineLimits {
  double read_gb_s = 0;    // all pool threads reading one buffer far larger than the caches
  double f32_gflop_s = 0;  // all pool threads, dependent-free FMA chains in registers
};
MachineLimits measure_machine(ThreadPool& pool);

}  // namespace nmc::kernels
