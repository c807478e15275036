// A worker process: one engine loop (worker.h) behind the messages of worker_protocol.h. It serves one front at a time
// and other workers that take KV from it. When its front's connections break, it drops that front's work and waits for
// the next.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/kv_export.h"
#include "engine/kv_import.h"
#include "engine/prefix_cache.h"
#include "engine/runtime.h"
#include "engine/worker.h"
#include "engine/worker_protocol.h"
#include "model/decoder.h"
#include "net/channel_server.h"
#include "store/store.h"

namespace nmc::engine {

struct WorkerServiceOptions {
  std::string name;        // "prefill-0"
  std::string role;        // "prefill", "decode"
  RuntimeOptions runtime;  // of it: reuse, transfer, block_tokens, max_running, max_batch_tokens, eos_ids, clock
  std::vector<std::shared_ptr<const model::Adapter>> adapters;
  std::string store;  // text that is equal for workers whose blocks lie in one store

  // Where it listens; one of the two at least. A hand-over over TCP is taken from the TCP address.
  std::string unix_path;
  std::string tcp_host;
  std::uint16_t tcp_port = 0;
  std::string token;  // asked of whoever comes over TCP, and shown to workers that KV is taken from
  bool insecure = false;

  Nanos handover_lease = std::chrono::seconds(10);
};

// Thread-safe.
class WorkerService final : private net::MessageHandler {
 public:
  // Serves as soon as it returns. Borrowed parts outlive it; `store` and `ns` as for create_runtime().
  static Result<std::unique_ptr<WorkerService>> start(const WorkerServiceOptions& options,
                                                      const model::Decoder& decoder, kv::Namespace ns,
                                                      store::Store& store, ThreadPool& pool);
  ~WorkerService() override;

  std::uint16_t tcp_port() const { return server_->tcp_port(); }

 private:
  class Front;
  class TicketListener;
  struct State;
  using Awaited = boost::asio::awaitable<net::Reply>;

  WorkerService(const WorkerServiceOptions& options, const model::Decoder& decoder, kv::Namespace ns,
                store::Store& store, ThreadPool& pool);
  WorkerHooks hooks();

  // net::MessageHandler
  void on_open(net::Session& session) override;
  void on_close(net::Session& session) override;
  Awaited handle(net::Session& session, net::Request& request) override;

  net::Reply answer(net::Session& session, net::Request& request);
  net::Reply hello(net::Session& session, net::Request& request);
  Awaited events(net::Session& session, net::Request& request);
  net::Reply assign(State& state, net::Request& request);
  Result<std::unique_ptr<Sequence>> make_sequence(Assignment& assignment, const std::shared_ptr<Front>& front) const;
  void begin_import(const std::shared_ptr<Front>& front, std::uint64_t handover, const std::string& source,
                    std::uint64_t tokens);
  net::Reply cancel(State& state, net::Request& request);
  net::Reply on_handover(net::Request& request, WorkerOp op, State& state);

  void prefilled(std::unique_ptr<Sequence> sequence);
  void finished(Sequence& sequence, FinishReason reason, std::optional<Error> error);
  void drop_front(const std::shared_ptr<Front>& front);
  WorkerFigures figures() NMC_EXCLUDES(mutex_);
  void keep_house();

  const WorkerServiceOptions options_;
  const model::Decoder& decoder_;
  store::Store& store_;
  const kv::Namespace ns_;
  KvContext kv_;
  std::string kv_address_;
  std::unique_ptr<PrefixCache> cache_;  // null: nothing is reused
  InboundKv inbound_;

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Front> front_ NMC_GUARDED_BY(mutex_);
  std::uint64_t held_ NMC_GUARDED_BY(mutex_) = 0;  // of the store, as of held_at_
  Nanos held_at_ NMC_GUARDED_BY(mutex_){0};

  // Ended last to first, but for the server, which goes before all: see the destructor.
  std::unique_ptr<KvExports> exports_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<KvImports> imports_;
  std::thread housekeeper_;
  std::unique_ptr<net::ChannelServer> server_;
};

}  // namespace nmc::engine
