// The tiers below a store's memory, nearest first: they hear of what is committed and removed, and give back what
// memory has evicted.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/lower_tier.h"
#include "store/master_core.h"
#include "store/shared_reader.h"

namespace nmc::store {

// Thread-safe, but for add(). What it pins, it pins for the client that `reader` is.
class Tiers final : public MasterObserver {
 public:
  // All outlive it.
  Tiers(MasterCore& master, SharedStoreReader& reader, TouchClock& clock)
      : master_(master), reader_(reader), clock_(clock) {}

  // Before the master is told of this observer. The tier writes behind from then on, and has it all written when it is
  // destroyed.
  Result<void> add(std::unique_ptr<TierMedium> medium, std::uint64_t queue_bytes_max);
  bool empty() const { return tiers_.empty(); }

  // MasterObserver
  void on_commit(std::uint32_t entry, std::uint64_t generation, ObjectClass object_class,
                 std::string_view key) override;
  bool on_remove(std::string_view key) override;
  bool relieve() override;

  // Whether some tier is known to have it, in that size; told without waiting.
  bool knows(std::string_view key, std::uint64_t bytes) const;
  // Its size, whatever that is.
  std::optional<std::uint64_t> known_size(std::string_view key) const;
  std::vector<std::string> known_keys() const;  // of all tiers, some twice
  // How many of keys[0..] restore() would find; a hint. `ask`: also where that takes a while.
  std::size_t probe_run(std::span<const std::string> keys, std::uint64_t bytes, bool ask) const;

  // Into memory, and pinned. Nothing: a miss; `why` says what went wrong, if something did. `bytes` 0: of any size.
  std::optional<Pin> restore(std::string_view key, ObjectClass object_class, std::uint64_t bytes, std::string* why);
  // The first of keys, and with it as many of the next `into.size()` as one tier reads at once. How many; 0: a miss.
  std::size_t restore_run(std::span<const std::string> keys, ObjectClass object_class, std::uint64_t bytes,
                          std::span<std::optional<Pin>> into, std::string* why);

  void wait_removed(std::string_view key);
  Result<void> flush();
  void fill_stats(StoreStats& stats) const;

 private:
  std::size_t restore_from(LowerTier& tier, std::span<const std::string_view> keys, ObjectClass object_class,
                           std::uint64_t bytes, std::span<std::optional<Pin>> into, std::string* why);
  std::optional<Pin> commit(const MasterCore::Space& space, std::string_view key, const LowerTier::Restoring& restoring,
                            LowerTier& tier, std::string* why);

  MasterCore& master_;
  SharedStoreReader& reader_;
  TouchClock& clock_;
  std::vector<std::unique_ptr<LowerTier>> tiers_;
};

}  // namespace nmc::store
