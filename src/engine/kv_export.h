// The KV that a worker process leaves for another: kept from a prompt's first chunk until it was taken.
//
// direct  By name. Full blocks have their prefix keys; what has none (the partial last block, and every block where
//         nothing is reused) is sealed: committed under a key that nobody else can know. All are pinned here.
// shm     A snapshot in a shared-memory segment, which grows layer by layer while the prompt is computed.
// tcp     The same, in memory, over a socket.
//
// Nobody waits for ever: what isn't taken, renewed or pulled for the time of the lease after the prompt is done is let
// go. A name is then a miss or, while the block is still cached, that very block; a snapshot is gone. Either way the
// other side computes what it lacks.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/result.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "engine/worker_protocol.h"
#include "kv/layout.h"
#include "net/channel_server.h"
#include "store/store.h"

namespace nmc::engine {

struct KvContext {
  kv::KvLayout layout;
  Digest ns;  // of the model, without adapter and salt: both ends must agree on it
  Transfer transfer = Transfer::kDirect;
  store::Store* store = nullptr;
  const Clock* clock = nullptr;
  Nanos lease = std::chrono::seconds(10);
};

class SnapshotExport;

// Thread-safe; a sequence is its worker's.
class KvExports {
 public:
  explicit KvExports(const KvContext& context);
  ~KvExports();

  // `sequence` is about to be computed, and its KV will be wanted as `handover`.
  void begin(std::uint64_t handover, Sequence& sequence);

  // Its prompt is computed: takes the KV over and fills the sending stages of its metrics. Names come with direct only.
  // On failure the KV is lost, and the sequence has its blocks still.
  Result<std::vector<BlockName>> complete(std::uint64_t handover, Sequence& sequence);

  void renew(std::uint64_t handover);    // somebody still means to take it
  void release(std::uint64_t handover);  // nobody does
  void release_expired();

  std::size_t count() const;
  std::size_t blocks_held() const;  // reserved or pinned for others

  // Answers WorkerOp::kPull.
  boost::asio::awaitable<net::Reply> pull(net::Request& request);

 private:
  // What is pinned for a taker.
  struct Named {
    std::vector<store::Pin> pins;
    std::vector<BlockName> names;
  };
  struct Export {
    std::shared_ptr<SnapshotExport> snapshot;  // null: by name
    Named named;
    bool complete = false;
    Nanos expires{0};  // once complete
  };

  Result<std::vector<BlockName>> complete_named(std::uint64_t handover, Sequence& sequence);
  Result<void> complete_snapshot(std::uint64_t handover, Sequence& sequence);
  Result<std::shared_ptr<SnapshotExport>> create_snapshot(std::uint64_t tokens) const;
  std::shared_ptr<SnapshotExport> find_snapshot(std::uint64_t handover) NMC_EXCLUDES(mutex_);
  void let_go(Export gone);

  const KvContext context_;
  const Digest secret_;  // of the keys of sealed blocks
  mutable Mutex mutex_;
  std::map<std::uint64_t, Export> exports_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::engine
