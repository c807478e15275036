#include "lab/bench_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/syscall.h"
#include "engine/runtime.h"
#include "kernels/kernels.h"
#include "lab/one_request.h"
#include "store/store.h"

namespace nmc::lab {
namespace {

constexpr std::uint64_t kSeed = 11;

std::vector<kv::TokenId> random_ids(Rng& rng, std::size_t count, std::size_t vocab) {
  std::vector<kv::TokenId> ids(count);
  for (kv::TokenId& id : ids) id = static_cast<kv::TokenId>(rng.below(vocab));
  return ids;
}

// ---- The forward pass alone -----------------------------------------------------------------------------------------

// Sequences with KV blocks of their own, so that a batch reads as much memory as it would in service.
class Sequences {
 public:
  static Result<Sequences> create(const kv::KvLayout& layout, std::size_t count, std::size_t tokens) {
    const std::size_t blocks = layout.blocks_for(tokens);
    NMC_ASSIGN_OR_RETURN(Mapping memory, Mapping::anonymous(count * blocks * layout.block_bytes()));
    Sequences sequences(std::move(memory));
    std::byte* next = sequences.memory_.data();
    for (std::size_t s = 0; s < count; ++s) {
      std::vector<std::byte*>& table = sequences.tables_.emplace_back();
      for (std::size_t b = 0; b < blocks; ++b, next += layout.block_bytes()) table.push_back(next);
    }
    return sequences;
  }

  // Addresses of the blocks that hold the first `tokens` positions.
  std::span<std::byte* const> blocks(std::size_t sequence, std::size_t tokens, std::uint32_t block_tokens) const {
    return std::span(tables_[sequence]).first((tokens + block_tokens - 1) / block_tokens);
  }
  std::size_t count() const { return tables_.size(); }

  // Gives every sequence the KV of the first.
  void copy_first(const kv::KvLayout& layout) {
    for (std::size_t s = 1; s < tables_.size(); ++s) {
      std::memcpy(tables_[s].front(), tables_.front().front(), tables_.front().size() * layout.block_bytes());
    }
  }

 private:
  explicit Sequences(Mapping memory) : memory_(std::move(memory)) {}
  Mapping memory_;
  std::vector<std::vector<std::byte*>> tables_;
};

class ForwardBench {
 public:
  ForwardBench(const model::Model& model, const BenchOptions& options, ThreadPool& pool)
      : model_(model), options_(options), pool_(pool), layout_(model.decoder->kv_layout(options.block_tokens)) {}

  // Seconds of each repeat, after one that is not counted.
  Result<std::vector<double>> prefill_seconds(std::size_t tokens) {
    NMC_ASSIGN_OR_RETURN(Sequences sequences, Sequences::create(layout_, 1, tokens));
    const std::vector<kv::TokenId> ids = random_ids(rng_, tokens, model_.config.vocab);
    std::vector<double> seconds;
    for (std::size_t repeat = 0; repeat <= options_.repeats; ++repeat) {
      const Stopwatch watch;
      prefill(sequences, ids);
      if (repeat > 0) seconds.push_back(watch.elapsed_ms() / 1e3);
    }
    return seconds;
  }

  Result<std::vector<double>> decode_seconds(std::size_t batch) {
    const std::size_t tokens = options_.context_tokens + options_.decode_steps;
    NMC_ASSIGN_OR_RETURN(Sequences sequences, Sequences::create(layout_, batch, tokens));
    prefill(sequences, random_ids(rng_, options_.context_tokens, model_.config.vocab));
    sequences.copy_first(layout_);
    logits_.resize(batch * model_.config.vocab);
    std::vector<double> seconds;
    for (std::size_t repeat = 0; repeat <= options_.repeats; ++repeat) {
      const Stopwatch watch;
      for (std::size_t step = 0; step < options_.decode_steps; ++step)
        decode(sequences, options_.context_tokens + step);
      if (repeat > 0) seconds.push_back(watch.elapsed_ms() / 1e3);
    }
    return seconds;
  }

 private:
  void prefill(const Sequences& sequences, std::span<const kv::TokenId> ids) {
    logits_.resize(std::max(logits_.size(), model_.config.vocab));
    for (std::size_t start = 0; start < ids.size(); start += options_.chunk_tokens) {
      const std::size_t end = std::min(ids.size(), start + options_.chunk_tokens);
      const model::Chunk chunk{.tokens = ids.subspan(start, end - start),
                               .start = start,
                               .blocks = sequences.blocks(0, end, options_.block_tokens),
                               .logits = end == ids.size() ? logits_.data() : nullptr};
      model_.decoder->forward(pool_, std::span(&chunk, 1), options_.block_tokens, workspace_);
    }
  }

  // One token for each sequence: the likeliest after the step before, as greedy decoding would have it.
  void decode(const Sequences& sequences, std::size_t position) {
    const std::size_t vocab = model_.config.vocab;
    ids_.resize(sequences.count());
    chunks_.clear();
    for (std::size_t s = 0; s < sequences.count(); ++s) {
      float* logits = &logits_[s * vocab];
      ids_[s] = static_cast<kv::TokenId>(kernels::argmax(std::span(logits, vocab)));
      chunks_.push_back({.tokens = std::span(&ids_[s], 1),
                         .start = position,
                         .blocks = sequences.blocks(s, position + 1, options_.block_tokens),
                         .logits = logits});
    }
    model_.decoder->forward(pool_, chunks_, options_.block_tokens, workspace_);
  }

  const model::Model& model_;
  const BenchOptions& options_;
  ThreadPool& pool_;
  const kv::KvLayout layout_;
  Rng rng_{kSeed};
  model::Workspace workspace_;
  std::vector<float> logits_;  // [batch][vocab]
  std::vector<kv::TokenId> ids_;
  std::vector<model::Chunk> chunks_;
};

// What one measurement had to move and to compute.
struct Work {
  std::size_t tokens = 0;
  double bytes = 0;
  double flops = 0;
};

std::size_t kv_bytes_per_token(const kv::KvLayout& layout) { return layout.block_bytes() / layout.block_tokens; }

Work decode_work(const model::Model& model, const BenchOptions& options, std::size_t batch) {
  const kv::KvLayout layout = model.decoder->kv_layout(options.block_tokens);
  Work work{.tokens = batch * options.decode_steps};
  for (std::size_t step = 0; step < options.decode_steps; ++step) {
    const std::size_t position = options.context_tokens + step;
    work.bytes += static_cast<double>(step_weight_bytes(model.config, model.decoder->dtype())) +
                  static_cast<double>(batch * (position + 1) * kv_bytes_per_token(layout));
    work.flops += static_cast<double>(batch) * forward_flops(model.config, 1, position, 1);
  }
  return work;
}

Work prefill_work(const model::Model& model, const BenchOptions& options, std::size_t tokens) {
  const kv::KvLayout layout = model.decoder->kv_layout(options.block_tokens);
  Work work{.tokens = tokens};
  for (std::size_t start = 0; start < tokens; start += options.chunk_tokens) {
    const std::size_t end = std::min(tokens, start + options.chunk_tokens);
    work.bytes += static_cast<double>(step_weight_bytes(model.config, model.decoder->dtype())) +
                  static_cast<double>(end * kv_bytes_per_token(layout));
    work.flops += forward_flops(model.config, end - start, start, end == tokens ? 1 : 0);
  }
  return work;
}

ThroughputRow throughput_row(const Work& work, const std::vector<double>& seconds, const BenchResult& machine) {
  std::vector<double> rates;
  for (const double second : seconds) rates.push_back(static_cast<double>(work.tokens) / second);
  ThroughputRow row{.tokens_per_s = spread_of(std::move(rates))};
  const double median_seconds = spread_of(seconds).median;
  row.memory_fraction = work.bytes / median_seconds / 1e9 / machine.memory_gb_s;
  row.matmul_fraction = work.flops / median_seconds / 1e9 / machine.matmul_gflops;
  return row;
}

// ---- The whole way through the runtime ------------------------------------------------------------------------------

class TtftBench {
 public:
  static Result<std::unique_ptr<TtftBench>> create(const model::Model& model, const BenchOptions& options,
                                                   ThreadPool& pool) {
    std::unique_ptr<TtftBench> bench(new TtftBench(model, options));
    const kv::Namespace ns = model.kv_namespace(options.block_tokens);
    // Every prompt of every repeat stays cached, with its tail.
    const std::size_t prompts = 3 * (options.repeats + 1);
    const std::size_t tail_bytes =
        prompts * (ns.layout.block_bytes() + model.config.vocab * sizeof(float) + (64 << 10));
    store::StoreOptions store_options;
    store_options.block_bytes = ns.layout.block_bytes();
    store_options.tail_bytes = tail_bytes;
    store_options.dram_bytes =
        (16 << 20) + 2 * tail_bytes +
        2 * prompts * (ns.layout.blocks_for(options.ttft_prompt_tokens + 1) + 1) * ns.layout.block_bytes();
    NMC_ASSIGN_OR_RETURN(bench->store_, store::Store::create(store_options));
    engine::RuntimeOptions runtime_options;
    runtime_options.block_tokens = options.block_tokens;
    runtime_options.max_batch_tokens = options.chunk_tokens;
    NMC_ASSIGN_OR_RETURN(bench->runtime_,
                         engine::create_runtime(runtime_options, *model.decoder, ns, *bench->store_, pool));
    return bench;
  }

  Result<std::vector<TtftRow>> run() {
    std::vector<TtftRow> rows = {{.name = "cold"}, {.name = "shared-prefix"}, {.name = "exact-hit"}};
    std::vector<std::vector<double>> samples(rows.size());
    const std::size_t length = options_.ttft_prompt_tokens;
    for (std::size_t repeat = 0; repeat <= options_.repeats; ++repeat) {
      const std::vector<kv::TokenId> fresh = random_ids(rng_, length, model_.config.vocab);
      std::vector<kv::TokenId> shared = random_ids(rng_, length, model_.config.vocab);
      std::copy_n(fresh.begin(), length * 9 / 10, shared.begin());
      const std::vector<kv::TokenId>* prompts[] = {&fresh, &shared, &fresh};
      for (std::size_t i = 0; i < rows.size(); ++i) {
        NMC_ASSIGN_OR_RETURN(const Completion done, one_token(*prompts[i]));
        rows[i].prompt_tokens = done.metrics.prompt_tokens;
        rows[i].computed_tokens = done.metrics.computed_tokens;
        rows[i].cache_source = done.metrics.cache_source;
        if (repeat > 0) samples[i].push_back(done.metrics.ttft_ms);
      }
      NMC_RETURN_IF_ERROR(check(rows));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].ttft_ms = spread_of(std::move(samples[i]));
    return rows;
  }

 private:
  TtftBench(const model::Model& model, const BenchOptions& options) : model_(model), options_(options) {}

  Result<Completion> one_token(const std::vector<kv::TokenId>& prompt) {
    engine::GenerateRequest request;
    request.id = fmt::format("ttft-{}", requests_++);
    request.prompt = prompt;
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    return run_request(*runtime_, std::move(request));
  }

  // A figure for a hit that was none would be worse than no figure.
  Result<void> check(const std::vector<TtftRow>& rows) const {
    const std::size_t block = options_.block_tokens;
    const std::size_t shared_blocks = rows[1].prompt_tokens * 9 / 10 / block;
    const std::size_t expected[] = {rows[0].prompt_tokens, rows[1].prompt_tokens - shared_blocks * block, 0};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].computed_tokens != expected[i]) {
        return internal_error("TTFT {}: {} of {} prompt tokens were computed, expected {}", rows[i].name,
                              rows[i].computed_tokens, rows[i].prompt_tokens, expected[i]);
      }
    }
    return {};
  }

  const model::Model& model_;
  const BenchOptions& options_;
  Rng rng_{kSeed + 1};
  std::size_t requests_ = 0;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Runtime> runtime_;  // before its store in destruction
};

Result<void> check_sizes(const model::Model& model, const BenchOptions& options) {
  NMC_REQUIRE(options.repeats > 0 && options.decode_steps > 0 && options.chunk_tokens > 0 && options.block_tokens > 0,
              "repeats={} steps={} chunk={}", options.repeats, options.decode_steps, options.chunk_tokens);
  const std::size_t limit = model.config.max_positions;
  const auto fits = [&](std::size_t tokens, std::size_t more, std::string_view what) -> Result<void> {
    if (tokens > 0 && tokens <= limit && more <= limit - tokens) return {};
    return invalid_argument(
        "{} of {} tokens and {} more: expected at least 1, and together at most the model's context of {}", what,
        tokens, more, limit);
  };
  for (const std::size_t tokens : options.prompt_tokens) NMC_RETURN_IF_ERROR(fits(tokens, 0, "a prompt"));
  NMC_RETURN_IF_ERROR(fits(options.context_tokens, options.decode_steps, "a decode context"));
  return fits(options.ttft_prompt_tokens, 1, "a TTFT prompt");
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  NMC_REQUIRE(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {median, samples.front(), samples.back()};
}

std::size_t step_weight_bytes(const model::ModelConfig& c, Dtype dtype) {
  const std::size_t layer =
      c.hidden * (c.q_size() + 2 * c.kv_size()) + c.q_size() * c.hidden + 3 * c.hidden * c.intermediate;
  return (c.layers * layer + c.vocab * c.hidden) * dtype_bytes(dtype);
}

double forward_flops(const model::ModelConfig& c, std::size_t rows, std::size_t start, std::size_t logit_rows) {
  const auto number = [](std::size_t value) { return static_cast<double>(value); };
  const double layer = number(c.hidden) * number(c.q_size() + 2 * c.kv_size()) + number(c.q_size()) * number(c.hidden) +
                       3 * number(c.hidden) * number(c.intermediate);
  // A row at position p attends to p + 1 keys: one multiply-add an element for scores, one for values.
  const double keys = number(rows) * number(start) + number(rows) * number(rows + 1) / 2;
  const double attention = 2 * number(c.q_size()) * keys;
  return 2 * (number(c.layers) * (number(rows) * layer + attention) +
              number(logit_rows) * number(c.vocab) * number(c.hidden));
}

Result<BenchResult> bench_engine(const model::Model& model, const BenchOptions& options, ThreadPool& pool) {
  NMC_RETURN_IF_ERROR(check_sizes(model, options));
  const auto progress = [&](const std::string& what) {
    if (options.on_progress) options.on_progress(what);
  };
  BenchResult result;
  progress("this machine's memory and arithmetic");
  const kernels::MachineLimits limits = kernels::measure_machine(pool);
  result.memory_gb_s = limits.read_gb_s;
  result.matmul_gflops = limits.f32_gflop_s;

  const Dtype dtype = model.decoder->dtype();
  ForwardBench bench(model, options, pool);
  for (const std::size_t batch : options.batches) {
    progress(fmt::format("decode, batch {}", batch));
    NMC_ASSIGN_OR_RETURN(const std::vector<double> seconds, bench.decode_seconds(batch));
    ThroughputRow& row =
        result.decode.emplace_back(throughput_row(decode_work(model, options, batch), seconds, result));
    row.batch = batch;
    row.tokens = options.context_tokens;
    row.kernel = kernels::matmul_kernel_name(batch, dtype);
  }
  for (const std::size_t tokens : options.prompt_tokens) {
    progress(fmt::format("prefill, {} tokens", tokens));
    NMC_ASSIGN_OR_RETURN(const std::vector<double> seconds, bench.prefill_seconds(tokens));
    ThroughputRow& row =
        result.prefill.emplace_back(throughput_row(prefill_work(model, options, tokens), seconds, result));
    row.batch = 1;
    row.tokens = tokens;
    row.kernel = kernels::matmul_kernel_name(std::min(tokens, options.chunk_tokens), dtype);
  }
  progress("time to the first token");
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<TtftBench> ttft, TtftBench::create(model, options, pool));
  NMC_ASSIGN_OR_RETURN(result.ttft, ttft->run());
  return result;
}

}  // namespace nmc::lab
