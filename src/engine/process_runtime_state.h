// Internal to process_runtime: what the front keeps of a request and of a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/process_runtime.h"
#include "engine/worker_link.h"
#include "engine/worker_protocol.h"

namespace nmc::engine {

constexpr std::size_t kNoWorker = std::numeric_limits<std::size_t>::max();

// Of a message that is numbers only.
template <typename... Numbers>
std::vector<std::byte> body_of(Numbers... numbers) {
  net::BodyWriter body;
  (body.put_u64(numbers), ...);
  return std::move(body).take();
}

// A request from its submission to its end.
struct ProcessRuntime::Live {
  enum class Stage {
    kToPrefill,  // in to_prefill_
    kPrefill,    // at a prefill worker
    kToDecode,   // in to_decode_: its first token is out
    kDecode,     // at a decode worker
  };

  GenerateRequest request;
  std::shared_ptr<RequestListener> listener;
  std::vector<kv::PrefixKey> keys;  // of its prompt's full blocks; empty where nothing is reused
  std::uint64_t arrival = 0;
  Nanos submitted{0}, admitted{0}, first_token{0}, here{0};  // here: admitted at its present worker

  Stage stage = Stage::kToPrefill;
  std::size_t worker = kNoWorker;    // that has it now
  std::uint64_t ticket = 0;          // its name there
  std::size_t excluded = kNoWorker;  // died with it
  bool was_retried = false;
  std::vector<TokenId> generated;
  std::size_t prompt_told = 1;  // as Sequence::prompt_told
  RequestMetrics metrics;
  Nanos cancelled_at{0};

  // Its KV on the way from `producer` to `consumer`; 0: none is.
  std::uint64_t handover = 0;
  std::size_t producer = kNoWorker, consumer = kNoWorker;
  bool handed_over = false;  // the producer has all of it
  std::uint64_t kv_tokens = 0;
  std::vector<BlockName> names;

  // Held while the listener is called, so that nothing comes after the end, whoever tells it.
  Mutex telling;
  bool ended NMC_GUARDED_BY(telling) = false;
};

struct ProcessRuntime::WorkerState {
  std::unique_ptr<WorkerLink> link;
  bool up = false, was_up = false;
  std::optional<Error> refused;
  Nanos heard{0};  // of it last
  std::size_t ups = 0;
  WorkerHello hello;
  WorkerFigures figures;
  std::map<std::uint64_t, LivePtr> work;  // by ticket

  const char* role() const { return link->worker().role.c_str(); }
  bool is(const char* wanted) const { return link->worker().role == wanted; }
  bool shares(const WorkerState& other) const { return !hello.store.empty() && hello.store == other.hello.store; }
};

}  // namespace nmc::engine
