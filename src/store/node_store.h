// The store of this host's node, as an engine uses it: several server processes fill and read the same blocks, so what
// one has computed is there for all, once.
//
// Blocks are reserved and committed by message and filled in place; lookups read the shared index. A reservation is
// pinned in this process's table for as long as it lives, which is how the master knows that it is wanted. Some blocks
// are kept in reserve, so that a few requests go on without a master. One that doesn't answer costs an error
// (kUnavailable) and is left alone for a moment.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "store/master_link.h"
#include "store/silence.h"
#include "store/store.h"

namespace nmc::store {

// Thread-safe.
class NodeStore final : public Store {
 public:
  // Joins the node that answers at options.server ("unix:PATH") and brings options.dram_bytes to it. When this store is
  // destroyed they stay there for the next process that brings as much, with what is in them, for as long as the master
  // keeps parked segments.
  static Result<std::unique_ptr<NodeStore>> join(StoreOptions options);
  ~NodeStore() override;

  Result<Reservation> reserve(ObjectClass object_class, std::size_t bytes) override;
  Result<std::vector<Reservation>> reserve_blocks(std::size_t count) override;
  std::size_t blocks_total() const override;
  Result<Pin> commit(Reservation&& reservation, std::string_view key) override;
  Result<void> put(ObjectClass object_class, std::string_view key, std::span<const std::byte> bytes) override;
  std::optional<Pin> lookup(std::string_view key) override;
  std::optional<Pin> fetch(std::string_view key, ObjectClass object_class, std::size_t bytes = 0) override;
  Run fetch_run(std::span<const std::string> keys) override;
  std::size_t probe_run(std::span<const std::string> keys) const override;
  void touch_run(std::span<const Pin> chain) override;
  bool remove(std::string_view key) override;
  Result<void> flush() override { return {}; }  // the disk is the master's, and so is its queue
  // The node's; pins, reservations and blocks_pinned are this process's. As of the last answer while there is none.
  StoreStats stats() const override;
  std::uint64_t held() const override;

 private:
  explicit NodeStore(StoreOptions options);
  Result<void> start();
  void give_back(const Reservation::Parts& parts) override;

  // One message, unless the master has just shown that it doesn't answer.
  Result<void> call(Op op, net::ByteSpan body, const MasterLink::OnReply& on_reply = nullptr) const;
  Result<void> check_not_silent() const;
  std::optional<Reservation> take_spare() NMC_EXCLUDES(mutex_);
  bool keep_spare(const Reservation::Parts& parts) NMC_EXCLUDES(mutex_);
  void abandon(const Reservation::Parts& parts);
  Result<std::vector<Reservation>> reserve_some(ObjectClass object_class, std::size_t bytes, std::size_t count);
  Result<Reservation> take(Membership& shared, const PlaceOnWire& place, ObjectClass object_class, std::size_t bytes);
  Result<StoreCode> send_commit(const Reservation& reservation, std::string_view key, std::uint64_t checksum);
  std::size_t restore(std::span<const std::string> keys, ObjectClass object_class, std::size_t bytes);
  Pin pin_own(Membership& shared, Reservation& reservation);
  Result<StoreStats> ask_stats() const;

  mutable MasterLink link_;
  mutable Silence silence_;
  std::size_t spares_max_ = 0;
  std::atomic<std::uint64_t> reservations_{0};  // spares not counted

  mutable Mutex mutex_;
  std::vector<Reservation::Parts> spares_ NMC_GUARDED_BY(mutex_);  // blocks, pinned like any reservation
  mutable StoreStats last_stats_ NMC_GUARDED_BY(mutex_);
  mutable Nanos last_stats_at_ NMC_GUARDED_BY(mutex_){0};
};

}  // namespace nmc::store
