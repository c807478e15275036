// How fast a model runs here, beside what this machine can do at most, measured in the same run: decode by batch,
// prefill by prompt length, and the time to the first token through the real runtime with and without a cached prefix.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/request.h"
#include "model/model.h"

namespace nmc::lab {

struct BenchOptions {
  std::vector<std::size_t> batches = {1, 8};
  std::vector<std::size_t> prompt_tokens = {128, 1024};
  std::size_t context_tokens = 512;  // in the cache of each decoding sequence when its measured steps begin
  std::size_t decode_steps = 16;     // of one measurement
  std::size_t chunk_tokens = 256;    // a prompt is prefilled in chunks of that many, as the engine does
  std::size_t ttft_prompt_tokens = 1024;
  std::size_t repeats = 3;
  std::uint32_t block_tokens = 16;
  std::function<void(std::string_view)> on_progress;  // what is measured next; may be empty
};

// Of the repeats.
struct Spread {
  double median = 0, min = 0, max = 0;
};
// `samples` is not empty.
Spread spread_of(std::vector<double> samples);

struct ThroughputRow {
  std::size_t batch = 0;   // sequences
  std::size_t tokens = 0;  // of the prompt, or in the cache when decoding begins
  std::string kernel;      // that the products of such a step run on
  Spread tokens_per_s;
  double memory_fraction = 0;  // bytes that had to be read over the time, against memory_gb_s
  double matmul_fraction = 0;  // operations over the time, against matmul_gflops
};

struct TtftRow {
  std::string name;  // "cold", "shared-prefix", "exact-hit"
  std::size_t prompt_tokens = 0;
  std::size_t computed_tokens = 0;
  engine::CacheSource cache_source = engine::CacheSource::kNone;
  Spread ttft_ms;
};

struct BenchResult {
  double memory_gb_s = 0;    // what all threads read together
  double matmul_gflops = 0;  // f32 multiply-adds of all threads together
  std::vector<ThroughputRow> decode;
  std::vector<ThroughputRow> prefill;
  std::vector<TtftRow> ttft;
};

// Bytes of weights that one step has to read: all matrices, not the embedding table.
std::size_t step_weight_bytes(const model::ModelConfig& config, Dtype dtype);
// Floating-point operations of `rows` consecutive positions from `start`, logits for `logit_rows` of them.
double forward_flops(const model::ModelConfig& config, std::size_t rows, std::size_t start, std::size_t logit_rows);

// kInvalidArgument when a size doesn't fit the model's context; kInternal when an exact hit computes a token.
Result<BenchResult> bench_engine(const model::Model& model, const BenchOptions& options, ThreadPool& pool);

}  // namespace nmc::lab
