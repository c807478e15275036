// Everything between settings and a running engine: threads, model, store, runtime, in the order in which they depend
// on each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cli/settings.h"
#include "cli/worker_processes.h"
#include "engine/runtime.h"
#include "engine/timeline.h"
#include "http/server.h"
#include "model/model.h"
#include "store/store.h"

namespace nmc::cli {

// Owns its parts; destroying it cancels what runs, writes the rest of the cache to disk and gives the memory back.
class Serving {
 public:
  // Nothing is left behind on failure. The error names what could not be read or had.
  static Result<Serving> create(const Settings& settings);

  Serving(Serving&&) = default;
  Serving& operator=(Serving&&) = delete;

  const model::Model& model() const { return *model_; }
  store::Store& store() { return *store_; }
  engine::Runtime& runtime() { return *runtime_; }
  const engine::Runtime& runtime() const { return *runtime_; }

  // Of --lora-modules, loaded.
  const std::vector<http::ServedAdapter>& adapters() const { return adapters_; }

  // What was chosen, in one line: model, size, context, memory, kernels.
  std::string description() const;

 private:
  Serving() = default;
  // Of --trace-out, which on_stage of `options` writes to.
  Result<void> open_timeline(const Settings& settings, engine::RuntimeOptions& options);

  // Declared in the order of need: destroyed last to first.
  std::unique_ptr<WorkerProcesses> processes_;  // of mode pd-process, else null
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<model::Model> model_;
  std::vector<http::ServedAdapter> adapters_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::TimelineWriter> timeline_;  // of --trace-out; null: none
  std::unique_ptr<engine::Runtime> runtime_;
};

// The parts of it that need no model.
int threads_of(const Settings& settings);
Nanos nanos_of(const Settings& settings, std::string_view name);  // of a setting in seconds
Result<store::StoreOptions> store_options_of(const Settings& settings, std::size_t block_bytes);
Result<std::vector<http::ServedAdapter>> load_adapters(const Settings& settings, const model::Model& model,
                                                       ThreadPool& pool);
Dtype dtype_of(const Settings& settings);
Result<engine::RuntimeOptions> runtime_options_of(const Settings& settings);

}  // namespace nmc::cli
