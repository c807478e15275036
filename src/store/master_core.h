// The master of a store: the only writer of the index. Reserves, commits, evicts, removes, under one lock; readers
// never take it. Which objects there are is in the shared index; everything else here (free space, order, counters) is
// derived.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "store/clients.h"
#include "store/index.h"
#include "store/lru.h"
#include "store/segment.h"
#include "store/space.h"
#include "store/store.h"

namespace nmc::store {

// What hears of commits and removals in their order. Called with the master's lock held: must not call back, nor wait.
class MasterObserver {
 public:
  virtual ~MasterObserver() = default;
  virtual void on_commit(std::uint32_t entry, std::uint64_t generation, ObjectClass object_class,
                         std::string_view key) = 0;
  // True when it had the key, too.
  virtual bool on_remove(std::string_view key) = 0;
  // Memory is short: give up some pins of a lender's. False when there are none to give.
  virtual bool relieve() = 0;
};

// Thread-safe.
class MasterCore {
 public:
  // `clock` outlives it.
  static Result<std::unique_ptr<MasterCore>> create(const StoreOptions& options, TouchClock& clock);

  // Before the first operation; it outlives them all.
  void set_observer(MasterObserver* observer) NMC_EXCLUDES(mutex_);

  Result<const PinTable*> add_client(Clients::Kind kind) NMC_EXCLUDES(mutex_);
  void drop_client(std::uint32_t client) NMC_EXCLUDES(mutex_);
  int index_fd() const { return index_.fd(); }
  int segment_fd() const { return segment_.fd(); }
  const IndexEntry& entry(std::uint32_t number) const { return index_.view().entry(number); }

  struct Space {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
    std::span<std::byte> bytes;
  };
  Result<Space> reserve(ObjectClass object_class, std::size_t bytes, std::uint32_t client) NMC_EXCLUDES(mutex_);
  Result<std::vector<Space>> reserve_blocks(std::size_t count, std::uint32_t client) NMC_EXCLUDES(mutex_);
  void abort(std::uint32_t entry, std::uint64_t generation) NMC_EXCLUDES(mutex_);
  std::size_t blocks_available() NMC_EXCLUDES(mutex_);

  struct Commit {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
    std::string_view key;
    const PinTable* pin_for = nullptr;
    std::uint64_t stamp = 0;                // of this use
    std::optional<std::uint64_t> checksum;  // of the bytes, where the writer has it
    // Set: the bytes come from the tier below, and the commit fails with kCancelled if it is true by then.
    const std::atomic<bool>* restore_cancelled = nullptr;
  };
  struct Held {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
  };
  // The object that readers see afterwards, pinned for `pin_for`: the reservation's, or the one that had the key
  // already (the reservation's space is then free). An error leaves the reservation as it was.
  Result<Held> commit(const Commit& commit) NMC_EXCLUDES(mutex_);
  // For a reader whose lock-free lookup didn't settle.
  std::optional<Held> pin(std::string_view key, const PinTable& pin_for, std::uint64_t stamp) NMC_EXCLUDES(mutex_);
  bool remove(std::string_view key) NMC_EXCLUDES(mutex_);

  // Fills in what the master knows: all but the disk tier's.
  void fill_stats(StoreStats& stats) NMC_EXCLUDES(mutex_);

  // Dying bytes that a client may keep pinned before its lookups miss; 0 is no limit.
  void set_limbo_cap(std::uint64_t bytes_per_client, std::uint32_t exempt_client) NMC_EXCLUDES(mutex_);
  std::uint64_t limbo_bytes_of(std::uint32_t client) NMC_EXCLUDES(mutex_);

 private:
  // What the master keeps of an entry in use, beside the shared entry.
  struct Holding {
    Place place;
    std::optional<Place> key;  // of a key too long for the entry
    ObjectClass object_class = ObjectClass::kObject;
    EntryState state = EntryState::kFree;
  };
  struct Victim {
    std::uint32_t entry = 0;
    ObjectClass object_class = ObjectClass::kObject;
  };
  static constexpr std::size_t kClasses = 3;
  static constexpr unsigned kAnyClass = 0b111;
  static constexpr unsigned class_bit(ObjectClass object_class) { return 1u << static_cast<unsigned>(object_class); }

  MasterCore(const StoreOptions& options, TouchClock& clock, std::uint64_t boot_id, Segment segment, IndexWriter index);

  // reserving
  Result<void> check_size(ObjectClass object_class, std::size_t bytes) const;
  Result<Space> reserve_locked(ObjectClass object_class, std::size_t bytes, std::uint32_t client) NMC_REQUIRES(mutex_);
  Result<void> make_tail_room_locked(std::size_t bytes) NMC_REQUIRES(mutex_);
  Result<std::uint32_t> take_entry_locked() NMC_REQUIRES(mutex_);
  Result<void> make_block_room_locked(std::size_t blocks) NMC_REQUIRES(mutex_);
  Result<Place> place_block_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  Result<Place> place_bytes_locked(std::size_t bytes, std::uint32_t entry) NMC_REQUIRES(mutex_);
  Result<bool> vacate_window_locked(std::size_t bytes) NMC_REQUIRES(mutex_);
  void abort_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  std::size_t blocks_available_locked() NMC_REQUIRES(mutex_);
  Failure no_room_locked(std::string_view what, std::size_t bytes) NMC_REQUIRES(mutex_);

  // committing
  std::optional<Held> pin_locked(std::string_view key, std::uint64_t hash, const PinTable& pin_for, std::uint64_t stamp)
      NMC_REQUIRES(mutex_);
  std::optional<std::uint32_t> find_locked(std::string_view key, std::uint64_t hash) NMC_REQUIRES(mutex_);
  bool key_equals_locked(std::uint32_t entry, std::string_view key) NMC_REQUIRES(mutex_);
  Result<void> write_key_locked(std::uint32_t entry, std::string_view key, std::uint64_t hash) NMC_REQUIRES(mutex_);

  // evicting
  EvictionPolicy& order_of(ObjectClass object_class) NMC_REQUIRES(mutex_);
  std::optional<Victim> find_victim_locked(unsigned classes) NMC_REQUIRES(mutex_);
  std::optional<Victim> oldest_unpinned_locked(unsigned classes) NMC_REQUIRES(mutex_);
  std::optional<std::uint64_t> stamp_if_evictable_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void evict_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void retire_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void free_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  bool sweep_limbo_locked() NMC_REQUIRES(mutex_);

  const StoreOptions options_;
  const std::uint64_t boot_id_;
  const std::uint64_t tail_bytes_max_;
  TouchClock& clock_;
  Segment segment_;    // bytes: whoever holds the reservation
  IndexWriter index_;  // writes: under mutex_; reads: anyone

  Mutex mutex_;
  MasterObserver* observer_ NMC_GUARDED_BY(mutex_) = nullptr;
  SegmentSpace space_ NMC_GUARDED_BY(mutex_);
  Clients clients_ NMC_GUARDED_BY(mutex_);
  std::vector<Holding> holdings_ NMC_GUARDED_BY(mutex_);  // by entry
  std::array<LruPolicy, kClasses> orders_ NMC_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> limbo_ NMC_GUARDED_BY(mutex_);
  std::uint64_t next_generation_ NMC_GUARDED_BY(mutex_) = 1;
  std::uint64_t tail_bytes_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint64_t limbo_cap_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint32_t limbo_exempt_ NMC_GUARDED_BY(mutex_) = 0;
  StoreStats counters_ NMC_GUARDED_BY(mutex_);  // only its counters, and the gauges that change one by one
};

}  // namespace nmc::store
