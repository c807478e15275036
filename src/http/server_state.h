// What the server's endpoints share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime.h"
#include "http/completion_request.h"
#include "http/latencies.h"
#include "http/request_histograms.h"
#include "http/server.h"
#include "model/model.h"
#include "store/store.h"

namespace nmc::http {

// Kept alive by the server and by every request in the engine; the borrowed parts outlive both. Thread-safe.
struct ServerState {
  ServerState(ServerOptions server_options, const model::Model& served_model, engine::Runtime& engine_runtime,
              const store::Store* block_store);

  const ServerOptions options;
  const model::Model& model;
  engine::Runtime& runtime;
  const store::Store* const store;  // may be nullptr
  const std::size_t context;        // tokens of a prompt and its answer that fit both model and block pool
  const std::vector<engine::TokenId> eos_ids;
  const std::int64_t created;  // unix time
  const Served served;

  Latencies latencies;
  RequestHistograms histograms;
  std::atomic<bool> draining{false};
  std::atomic<std::uint64_t> ended_by_stop{0}, ended_by_length{0};  // answers by their finish_reason
  std::atomic<std::uint64_t> ended_by_stop_string{0};  // of the former: cancelled as far as the runtime knows

  // Of one of served.models; nullptr for the model itself.
  std::shared_ptr<const model::Adapter> adapter_of(std::size_t served_model) const {
    return served_model == 0 ? nullptr : options.adapters[served_model - 1].adapter;
  }
  const Clock& clock() const { return *runtime.options().clock; }
  // Another each time.
  std::uint64_t draw();

 private:
  const std::uint64_t draw_key_;
  std::atomic<std::uint64_t> draws_{0};
};

}  // namespace nmc::http
