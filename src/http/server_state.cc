#include "http/server_state.h"

#include <algorithm>

#include "base/entropy.h"
#include "base/rng.h"

namespace nmc::http {
namespace {

std::size_t context_of(const model::Model& model, const engine::RuntimeOptions& runtime, const store::Store* store) {
  std::size_t context = runtime.max_context == 0 ? model.config.max_positions : runtime.max_context;
  if (store != nullptr) context = std::min<std::size_t>(context, store->blocks_total() * runtime.block_tokens);
  return context;
}

Served served_of(const ServerOptions& options, const model::Model& model) {
  Served served{.models = {options.served_model_name}, .defaults = model.defaults};
  for (const ServedAdapter& adapter : options.adapters) served.models.push_back(adapter.name);
  return served;
}

}  // namespace

ServerState::ServerState(ServerOptions server_options, const model::Model& served_model,
                         engine::Runtime& engine_runtime, const store::Store* block_store)
    : options(std::move(server_options)),
      model(served_model),
      runtime(engine_runtime),
      store(block_store),
      context(context_of(served_model, engine_runtime.options(), block_store)),
      eos_ids(engine_runtime.options().eos_ids),
      created(engine_runtime.options().clock->unix_seconds()),
      served(served_of(options, served_model)),
      histograms(context),
      draw_key_(machine_random()) {}

std::uint64_t ServerState::draw() { return keyed_random(draw_key_, 0, draws_.fetch_add(1, std::memory_order_relaxed)); }

}  // namespace nmc::http
