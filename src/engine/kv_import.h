// The KV that a worker process takes over from another (kv_export.h): by name, when the sequence is admitted, or as a
// snapshot that is pulled by a thread of its own while it is still being made.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/handover.h"
#include "engine/kv_export.h"
#include "engine/sequence.h"
#include "engine/worker_protocol.h"
#include "net/channel.h"

namespace nmc::engine {

// Unpacks the parcels that named_parcel() and KvImports make.
class InboundKv final : public KvInlet {
 public:
  Result<void> receive(Sequence& sequence) override;
};

// A hand-over by name. `on_taken` runs once: when its blocks were taken, or never will be.
std::unique_ptr<Parcel> named_parcel(const KvContext& context, std::vector<BlockName> names, std::uint64_t tokens,
                                     std::function<void()> on_taken);

// Snapshots under way. Thread-safe.
class KvImports {
 public:
  KvImports(const KvContext& context, net::ChannelOptions channels);
  ~KvImports();  // gives up what is under way; parcels may outlive it

  // Begins to pull `handover` from `source`, unless it is under way already. `on_taken` runs once on some thread: when
  // the source isn't needed any more.
  void begin(std::uint64_t handover, const std::string& source, std::uint64_t tokens, std::function<void()> on_taken);
  // `then` gets its parcel as soon as it is whole, null if it was lost; on some thread, perhaps at once on this one. To
  // be called once for each that began and wasn't dropped.
  void take(std::uint64_t handover, std::function<void(std::unique_ptr<Parcel>)> then);
  // It isn't wanted any more: whoever waits in take() gets nothing.
  void drop(std::uint64_t handover);

  std::size_t count() const;

 private:
  struct Import;
  using Channels = std::vector<std::unique_ptr<net::Channel>>;

  void run();
  Result<void> pull(Import& import);
  Result<void> pull_from(Import& import, net::Channel& channel);
  Result<std::vector<store::Reservation>> reserve(const Import& import) NMC_EXCLUDES(mutex_);
  Result<std::unique_ptr<net::Channel>> take_channel(const std::string& source) NMC_EXCLUDES(mutex_);
  void settle(const std::shared_ptr<Import>& import, bool whole) NMC_EXCLUDES(mutex_);

  const KvContext context_;
  const net::ChannelOptions channel_options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, std::shared_ptr<Import>> imports_ NMC_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Import>> waiting_ NMC_GUARDED_BY(mutex_);
  std::map<std::string, Channels> idle_ NMC_GUARDED_BY(mutex_);
  std::size_t idle_threads_ NMC_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::engine
