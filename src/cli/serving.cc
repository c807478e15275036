#include "cli/serving.h"

#include <fmt/core.h>

#include <set>

#include "base/check.h"
#include "cli/serving_settings.h"
#include "cli/setting.h"
#include "cli/token_settings.h"
#include "kernels/kernels.h"

namespace nmc::cli {
namespace {

// The enumerator whose name was chosen; `name_of` is the engine's own list of names.
template <typename Enum>
Result<Enum> choice(const Settings& settings, std::string_view name, const char* (*name_of)(Enum),
                    std::initializer_list<Enum> values) {
  for (const Enum value : values) {
    if (settings.text(name) == name_of(value)) return value;
  }
  return unsupported("{}: {} is not supported by this version", settings.where(name), settings.text(name));
}

}  // namespace

Result<store::StoreOptions> store_options_of(const Settings& settings, std::size_t block_bytes) {
  store::StoreOptions options;
  if (settings.text("store") != "embedded") {
    options.server = settings.text("store");
    NMC_ASSIGN_OR_RETURN(options.token, token_of(settings));
    options.tls_ca = settings.text_or("tls-ca", "");
  }
  const bool node = options.server.starts_with("unix:");
  if (!node && settings.bytes("dram-bytes") == 0)
    return invalid_argument("{}: 0, expected memory for KV blocks: only a server of a --store unix:PATH can do without",
                            settings.where("dram-bytes"));
  if (node && settings.has("disk-dir"))
    return invalid_argument("{}: with --store {} the disk is the master's: start that with --disk-dir",
                            settings.where("disk-dir"), options.server);
  options.dram_bytes = settings.bytes("dram-bytes");
  options.block_bytes = block_bytes;
  if (settings.has("tail-bytes")) options.tail_bytes = settings.bytes("tail-bytes");
  options.disk_dir = settings.text_or("disk-dir", "");
  options.disk_bytes = settings.bytes("disk-bytes");
  return options;
}

Result<std::vector<http::ServedAdapter>> load_adapters(const Settings& settings, const model::Model& model,
                                                       ThreadPool& pool) {
  std::vector<http::ServedAdapter> adapters;
  if (!settings.has("lora-modules")) return adapters;
  std::set<std::string> names = {settings.text("served-model-name")};
  const auto specs = parse_adapter_list(settings.text("lora-modules"));
  NMC_ASSERT(specs.has_value(), "lora-modules={}", settings.text("lora-modules"));
  for (const AdapterSpec& spec : *specs) {
    if (!names.insert(spec.name).second) {
      return invalid_argument("{}: the name {} is taken: expected names that differ from each other and from {}",
                              settings.where("lora-modules"), spec.name, settings.text("served-model-name"));
    }
    NMC_ASSIGN_OR_RETURN(auto adapter, model::Adapter::load(spec.folder, model.config, pool));
    adapters.push_back({spec.name, std::move(adapter)});
  }
  return adapters;
}

int threads_of(const Settings& settings) {
  const auto threads = static_cast<int>(settings.integer("threads"));
  return threads == 0 ? available_cpus() : threads;
}

Dtype dtype_of(const Settings& settings) {
  const std::optional<Dtype> dtype = parse_dtype(settings.text("dtype"));
  NMC_ASSERT(dtype.has_value(), "dtype={}", settings.text("dtype"));
  return *dtype;
}

Result<engine::RuntimeOptions> runtime_options_of(const Settings& settings) {
  using engine::Mode;
  using engine::Reuse;
  using engine::Transfer;
  engine::RuntimeOptions options;
  NMC_ASSIGN_OR_RETURN(options.mode,
                       choice(settings, "mode", engine::mode_name, {Mode::kMonolithic, Mode::kPd, Mode::kPdProcess}));
  NMC_ASSIGN_OR_RETURN(options.reuse,
                       choice(settings, "reuse", engine::reuse_name, {Reuse::kNone, Reuse::kLocal, Reuse::kGlobal}));
  NMC_ASSIGN_OR_RETURN(options.transfer, choice(settings, "transfer", engine::transfer_name,
                                                {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}));
  options.block_tokens = static_cast<std::uint32_t>(settings.integer("block-tokens"));
  options.max_queue = settings.count("max-queue");
  options.max_running = settings.count("max-running");
  options.max_batch_tokens = settings.count("max-batch-tokens");
  options.max_context = settings.count("max-context");
  for (const char* name : {"prefill", "decode"}) {
    if (options.mode != Mode::kPdProcess && settings.integer(name) != 1)
      return unsupported("{}: {}: several workers of a kind, or none, are processes: --mode pd-process",
                         settings.where(name), settings.integer(name));
  }
  return options;
}

Nanos nanos_of(const Settings& settings, std::string_view name) {
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(settings.seconds(name)));
}

Result<Serving> Serving::create(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(engine::RuntimeOptions options, runtime_options_of(settings));
  Serving serving;
  NMC_RETURN_IF_ERROR(serving.open_timeline(settings, options));
  if (options.mode == engine::Mode::kPdProcess) {
    NMC_ASSIGN_OR_RETURN(WorkerProcesses begun, WorkerProcesses::begin(settings));
    serving.processes_ = std::make_unique<WorkerProcesses>(std::move(begun));
  }
  WorkerProcesses* const processes = serving.processes_.get();
  serving.pool_ = std::make_unique<ThreadPool>(threads_of(settings));
  const model::PackOptions pack = processes == nullptr ? model::PackOptions{} : processes->pack_options();
  NMC_ASSIGN_OR_RETURN(model::Model model,
                       model::load_model(settings.text("model"), dtype_of(settings), *serving.pool_, pack));
  serving.model_ = std::make_unique<model::Model>(std::move(model));
  NMC_ASSIGN_OR_RETURN(serving.adapters_, load_adapters(settings, *serving.model_, *serving.pool_));
  const kv::Namespace ns = serving.model_->kv_namespace(options.block_tokens);
  options.eos_ids = serving.model_->eos_ids();
  if (processes != nullptr) {
    NMC_ASSIGN_OR_RETURN(serving.store_, processes->join_store(settings, ns.layout.block_bytes()));
    NMC_ASSIGN_OR_RETURN(serving.runtime_, processes->start_workers(settings, std::move(options),
                                                                    serving.model_->config, ns, *serving.store_));
    return serving;
  }
  NMC_ASSIGN_OR_RETURN(store::StoreOptions memory, store_options_of(settings, ns.layout.block_bytes()));
  NMC_ASSIGN_OR_RETURN(serving.store_, store::Store::create(std::move(memory)));
  NMC_ASSIGN_OR_RETURN(serving.runtime_,
                       engine::create_runtime(options, *serving.model_->decoder, ns, *serving.store_, *serving.pool_));
  return serving;
}

Result<void> Serving::open_timeline(const Settings& settings, engine::RuntimeOptions& options) {
  if (!settings.has("trace-out")) return {};
  auto timeline = engine::TimelineWriter::create(settings.text("trace-out"));
  if (!timeline) return Failure(std::move(timeline).error().with_context(settings.where("trace-out")));
  timeline_ = std::move(*timeline);
  options.on_stage = [writer = timeline_.get()](const engine::StageSpan& span) { writer->add(span); };
  return {};
}

std::string Serving::description() const {
  const engine::RuntimeOptions& options = runtime_->options();
  const model::Decoder& decoder = *model_->decoder;
  std::string mode = engine::mode_name(options.mode);
  if (options.mode != engine::Mode::kMonolithic)
    mode += fmt::format(" ({} hand-over)", engine::transfer_name(options.transfer));
  if (processes_ != nullptr) mode += fmt::format(" of {} workers", runtime_->status().workers.size());
  std::string disk;
  if (!store_->options().disk_dir.empty()) {
    disk =
        fmt::format(", disk {} in {}", format_bytes(store_->options().disk_bytes), store_->options().disk_dir.string());
  }
  const std::string& server = store_->options().server;
  const std::string where = server.empty() ? "" : fmt::format(" (store {})", server);
  return fmt::format(
      "model {} of {:.1f} M parameters, {} in {}; context {} tokens; KV {} in blocks of {} tokens, {} each{}{}; "
      "mode {}, reuse {}; {} threads, {} kernels",
      model_->name, static_cast<double>(model_->config.parameters()) / 1e6, format_bytes(decoder.weight_bytes()),
      dtype_name(decoder.dtype()), options.max_context, format_bytes(store_->options().dram_bytes),
      options.block_tokens, format_bytes(store_->options().block_bytes), where, disk, mode,
      engine::reuse_name(options.reuse), pool_->size(), kernels::instruction_level());
}

}  // namespace nmc::cli
