// `nano-mooncake bench-engine`: throughput of a model beside the limits of the machine.
#include "lab/bench_engine.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "kernels/kernels.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"model", "dtype", "threads", "block-tokens"};

std::vector<std::size_t> sizes_of(const Settings& settings, std::string_view name) {
  const std::vector<std::int64_t>& numbers = settings.integers(name);
  return {numbers.begin(), numbers.end()};
}

lab::BenchOptions bench_options_of(const Settings& settings) {
  lab::BenchOptions options;
  options.batches = sizes_of(settings, "batch");
  options.prompt_tokens = sizes_of(settings, "prompt-tokens");
  options.context_tokens = settings.count("context-tokens");
  options.decode_steps = settings.count("decode-steps");
  options.ttft_prompt_tokens = settings.count("ttft-prompt-tokens");
  options.repeats = settings.count("repeats");
  options.chunk_tokens = settings.count("max-batch-tokens");
  options.block_tokens = static_cast<std::uint32_t>(settings.integer("block-tokens"));
  if (!settings.on("quiet")) {
    options.on_progress = [](std::string_view what) { fmt::print(stderr, "nano-mooncake bench-engine: {}\n", what); };
  }
  return options;
}

Json json_of(const lab::ThroughputRow& row, const char* tokens_name, const char* rate_name) {
  const std::string rate = rate_name;
  return {{"batch", row.batch},
          {tokens_name, row.tokens},
          {"kernel", row.kernel},
          {rate, row.tokens_per_s.median},
          {rate + "_min", row.tokens_per_s.min},
          {rate + "_max", row.tokens_per_s.max},
          {"memory_fraction", row.memory_fraction},
          {"matmul_fraction", row.matmul_fraction}};
}

Json json_of(const lab::TtftRow& row) {
  return {{"case", row.name},
          {"prompt_tokens", row.prompt_tokens},
          {"computed_tokens", row.computed_tokens},
          {"cache_source", engine::cache_source_name(row.cache_source)},
          {"ttft_ms", row.ttft_ms.median},
          {"ttft_ms_min", row.ttft_ms.min},
          {"ttft_ms_max", row.ttft_ms.max}};
}

Json json_of(const model::Model& model, const ThreadPool& pool, const Settings& settings,
             const lab::BenchResult& result) {
  Json workload = {{"kind", "bench-engine"}};
  for (const char* name : {"batch", "prompt-tokens"}) workload[name] = settings.integers(name);
  for (const char* name :
       {"context-tokens", "decode-steps", "ttft-prompt-tokens", "repeats", "max-batch-tokens", "block-tokens"})
    workload[name] = settings.integer(name);
  Json json = {{"schema", "nano-mooncake/bench-engine/v1"},
               {"provenance", lab::provenance_json({.evidence_tier = lab::tier_of_model(settings.text("model")),
                                                    .model = &model,
                                                    .workload = std::move(workload)})},
               {"model", model.name},
               {"parameters", model.config.parameters()},
               {"weight_bytes", model.decoder->weight_bytes()},
               {"dtype", dtype_name(model.decoder->dtype())},
               {"threads", pool.size()},
               {"instruction_level", kernels::instruction_level()},
               {"repeats", settings.integer("repeats")},
               {"memory_gb_s", result.memory_gb_s},
               {"matmul_gflops", result.matmul_gflops},
               {"decode", Json::array()},
               {"prefill", Json::array()},
               {"ttft", Json::array()}};
  for (const auto& row : result.decode) json["decode"].push_back(json_of(row, "context_tokens", "decode_tokens_per_s"));
  for (const auto& row : result.prefill)
    json["prefill"].push_back(json_of(row, "prompt_tokens", "prefill_tokens_per_s"));
  for (const auto& row : result.ttft) json["ttft"].push_back(json_of(row));
  return json;
}

std::vector<Cell> row_of(const char* name, const lab::ThroughputRow& row) {
  return {name,
          Cell(row.batch),
          Cell(row.tokens),
          "",
          "tokens/s",
          Cell(row.tokens_per_s.median, 1),
          Cell(row.tokens_per_s.min, 1),
          Cell(row.tokens_per_s.max, 1),
          Cell(row.memory_fraction, 2),
          Cell(row.matmul_fraction, 2),
          row.kernel};
}

std::vector<Cell> row_of(const lab::TtftRow& row) {
  return {"ttft " + row.name,
          Cell(std::size_t{1}),
          Cell(row.prompt_tokens),
          Cell(row.computed_tokens),
          "ms",
          Cell(row.ttft_ms.median, 2),
          Cell(row.ttft_ms.min, 2),
          Cell(row.ttft_ms.max, 2),
          "",
          "",
          ""};
}

Table table_of(const lab::BenchResult& result) {
  Table table;
  table.columns = {"measure", "batch", "tokens",    "computed",  "unit",  "median",
                   "min",     "max",   "of_memory", "of_matmul", "kernel"};
  for (const auto& row : result.decode) table.rows.push_back(row_of("decode", row));
  for (const auto& row : result.prefill) table.rows.push_back(row_of("prefill", row));
  for (const auto& row : result.ttft) table.rows.push_back(row_of(row));
  return table;
}

std::string heading(const model::Model& model, const ThreadPool& pool, const lab::BenchResult& result) {
  return fmt::format(
      "{}: {:.1f} M parameters, {} in {}\nmachine: {} threads, {}; reads {:.1f} GB/s, computes {:.0f} GFLOP/s "
      "(f32)\n\n",
      model.name, static_cast<double>(model.config.parameters()) / 1e6, format_bytes(model.decoder->weight_bytes()),
      dtype_name(model.decoder->dtype()), pool.size(), kernels::instruction_level(), result.memory_gb_s,
      result.matmul_gflops);
}

Result<int> run(const Settings& settings) {
  if (std::string_view(build_info().build_type) != "Release") {
    log_warning("this is a {} build: its figures say nothing about a Release build", build_info().build_type);
  }
  ThreadPool pool(threads_of(settings));
  NMC_ASSIGN_OR_RETURN(const model::Model model, model::load_model(settings.text("model"), dtype_of(settings), pool));
  NMC_ASSIGN_OR_RETURN(const lab::BenchResult result, lab::bench_engine(model, bench_options_of(settings), pool));
  Report report;
  report.json = json_of(model, pool, settings, result);
  report.table = table_of(result);
  report.text = heading(model, pool, result) + format_table(report.table);
  NMC_RETURN_IF_ERROR(write_report(report, settings));
  return kExitDone;
}

std::vector<Setting> bench_settings() {
  return {
      {.name = "batch",
       .kind = Kind::kIntegers,
       .placeholder = "N,N,...",
       .default_text = "1,8",
       .help = "Sequences that decode together.",
       .low = 1,
       .high = 1024,
       .source = Source::kFlagOnly},
      {.name = "context-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "512",
       .help = "Tokens in the cache of each when the measured steps begin.",
       .low = 1,
       .high = 1 << 20,
       .source = Source::kFlagOnly},
      {.name = "decode-steps",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "16",
       .help = "Steps in one measurement.",
       .low = 1,
       .high = 65'536,
       .source = Source::kFlagOnly},
      {.name = "prompt-tokens",
       .kind = Kind::kIntegers,
       .placeholder = "N,N,...",
       .default_text = "128,1024",
       .help = "Prompts to prefill, in tokens.",
       .low = 1,
       .high = 1 << 20,
       .source = Source::kFlagOnly},
      {.name = "ttft-prompt-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1024",
       .help = "Prompt of the measurements of the time to the first token.",
       .low = 1,
       .high = 1 << 20,
       .source = Source::kFlagOnly},
      {.name = "repeats",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "3",
       .help = "Measurements of each kind, after one that is not counted.",
       .low = 1,
       .high = 1000,
       .source = Source::kFlagOnly},
  };
}

}  // namespace

Command bench_engine_command() {
  Command command{
      .name = "bench-engine",
      .summary = "prefill and decode throughput of a model beside this machine's limits",
      .purpose =
          "Measures in one run what the machine can read from memory and compute at most, then decode throughput by "
          "batch, prefill throughput by prompt length, and the time to the first token through the real runtime: cold, "
          "with 90 % of the prompt cached, and with all of it cached, when no token is computed. Throughputs stand "
          "beside the fraction of the machine's limits they reach; a model that fits the caches can read faster than "
          "memory. Medians of --repeats, with least and most.",
      .settings = bench_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake bench-engine --model ./TinyLlama-1.1B --batch 1,4,16 --format json --output bench.json",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
