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
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "store/clients.h"
#include "store/index.h"
#include "store/lru.h"
#include "store/segment.h"
#include "store/shared_files.h"
#include "store/shared_reader.h"
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

struct CoreOptions {
  std::size_t block_bytes = 0;  // size of kBlock objects; 0: any, they lie in the heap like all others
  // Of kTail objects together. Not set: a twentieth of what is mounted.
  std::optional<std::uint64_t> tail_bytes_max;
  IndexWriter::Entries entries;
  // A removal that isn't forced is refused for so long after a read (the API's lease); 0: never. Eviction and the
  // safety of reads know nothing of it.
  Nanos lease{0};
  // Soft-pinned objects go after all others for so long from their commit on, or from when this master found them. Uses
  // don't prolong it.
  Nanos soft_pin_lifetime = std::chrono::minutes(30);
  Nanos soft_pin_lifetime_max = std::chrono::hours(24);  // of one that a commit asks for
  bool evict_soft_pinned = true;                         // false: never before that time is up
  // A reservation that isn't committed for so long no longer can be; its space waits for the client's word, or its
  // death. 0: it always can.
  Nanos reservation_lifetime{0};
};

// Thread-safe.
class MasterCore {
 public:
  // A new store without segments. `clock` outlives it.
  static Result<std::unique_ptr<MasterCore>> create(const CoreOptions& options, SharedFiles files, TouchClock& clock);

  struct Adopted {
    std::size_t clients = 0, segments = 0, objects = 0, reservations = 0;
    std::size_t dropped_entries = 0;  // damaged, or of a segment that is gone
  };
  // Goes on with the store that a master, who is gone, left in the folder; the caller has made sure that nobody else
  // does. Living clients keep their pins and reservations. Files that nobody has use for are removed. kNotFound: there
  // is none; another error: it can't be used, and is left as it was. Only for stores without a block size.
  static Result<std::unique_ptr<MasterCore>> adopt(const CoreOptions& options, SharedFiles files, TouchClock& clock,
                                                   Adopted* adopted = nullptr);

  // Of a store that nobody goes on with: its index, pin tables and segments.
  static void remove_files(SharedFiles& files);

  // It is told of what an earlier master left, too, and outlives all operations from now on, or until it is null again.
  // Clients see that there is a tier below.
  void set_observer(MasterObserver* observer) NMC_EXCLUDES(mutex_);

  // Clients.
  Result<const PinTable*> add_client(Clients::Kind kind) NMC_EXCLUDES(mutex_);
  // It is gone for good: its pins and reservations hold nothing any more. Its uses still count.
  void drop_client(std::uint32_t client) NMC_EXCLUDES(mutex_);
  // nullptr: none of that number. The table stays until drop_client().
  const PinTable* find_client(std::uint32_t client) NMC_EXCLUDES(mutex_);
  std::vector<std::uint32_t> clients() NMC_EXCLUDES(mutex_);
  // What a reader of this process, or of another that is sent the fds, opens. The fds are its own.
  Result<ClientFiles> files_for(const PinTable& table) NMC_EXCLUDES(mutex_);
  // May be called with the master's lock held, as by an observer's reader.
  Result<UniqueFd> open_segment(std::uint32_t number) NMC_EXCLUDES(fds_mutex_);
  const IndexEntry& entry(std::uint32_t number) const { return index_.view().entry(number); }
  const IndexView& index() const { return index_.view(); }

  // Segments.
  struct SegmentInfo {
    std::uint32_t number = 0;
    std::string name;
    std::uint32_t owner = 0;
    std::uint64_t bytes = 0, used_bytes = 0;
    SegmentState state = SegmentState::kMounted;  // kLeaving: no new objects, gone with its last pin
  };
  // Room for more objects, named `name`; `owner` 0 is the master itself. A parked segment of that size is taken over,
  // with what is in it. kAlreadyExists: a mounted one has that name. It takes a quarter of a second and more per
  // gigabyte, in which all else goes on but other mounts.
  Result<std::uint32_t> mount(std::string_view name, std::uint64_t bytes, std::uint32_t owner)
      NMC_EXCLUDES(mount_mutex_, gone_mutex_, mutex_);
  // Its owner died. What only lies there isn't found any more, until another owner takes the segment over; who has it
  // pinned keeps it. It is gone for good when its key gets another object, or is removed, meanwhile. kNotFound.
  Result<void> park(std::uint32_t number) NMC_EXCLUDES(mutex_);
  // What it holds and no other segment has is gone for readers; who has it pinned keeps it. kNotFound.
  Result<void> unmount(std::uint32_t number) NMC_EXCLUDES(mutex_);
  std::vector<SegmentInfo> segments() NMC_EXCLUDES(mutex_);
  // Now and then: frees what nobody has pinned any more, takes back reservations that their living clients have lost
  // sight of, and unmounts what has been parked for `parked_lifetime`.
  void keep_house(Nanos parked_lifetime) NMC_EXCLUDES(gone_mutex_, mutex_);

  struct Space {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
    std::span<std::byte> bytes;
    Location at;
  };
  struct Wish {
    ObjectClass object_class = ObjectClass::kObject;
    std::size_t bytes = 0;
    std::uint32_t client = 0;
    std::span<const std::string> preferred = {};  // names of segments, the first that has or makes room
    std::span<const std::uint16_t> avoid = {};    // segments that hold another copy
    bool by_client = false;  // who fills it by itself, and says in its pin table until when it may be at that
    // As by_client, for as long as the client likes: it pins the reservation once it knows of it. One that isn't pinned
    // after kHeldPinDeadline is lost and taken back.
    bool held_by_pin = false;
  };
  static constexpr Nanos kHeldPinDeadline = std::chrono::seconds(30);
  Result<Space> reserve(const Wish& wish) NMC_EXCLUDES(mutex_);
  // `count` of them, for a store that has block_bytes.
  Result<std::vector<Space>> reserve_blocks(std::size_t count, std::uint32_t client) NMC_EXCLUDES(mutex_);
  // `count` of what is wished or none; nothing is evicted where that is known beforehand.
  Result<std::vector<Space>> reserve_all(const Wish& wish, std::size_t count) NMC_EXCLUDES(mutex_);
  // False: there is no such reservation.
  bool abort(std::uint32_t entry, std::uint64_t generation, std::optional<std::uint32_t> client = std::nullopt)
      NMC_EXCLUDES(mutex_);
  std::size_t blocks_available() NMC_EXCLUDES(mutex_);

  struct Held {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
  };
  struct Commit {
    std::uint32_t entry = 0;
    std::uint64_t generation = 0;
    std::string_view key;
    const PinTable* pin_for = nullptr;      // null: the caller wants no pin, and the commit counts as no read
    std::uint64_t stamp = 0;                // of this use
    std::optional<std::uint64_t> checksum;  // of the bytes, where the writer has it
    std::optional<std::uint32_t> client;    // whose reservation it must be
    bool replace = false;                   // takes the key over from the object that has it
    bool keep_if_taken = false;             // kAlreadyExists when another has it, and the reservation stays
    SoftPin soft_pin = SoftPin::kKeep;
    std::optional<Nanos> soft_pin_lifetime = std::nullopt;  // not set: the master's
    bool hard_pin = false;
    // Further reservations with the same bytes, in other segments: each takes over where the copies before it are gone.
    // They go with the object. One that can't be committed is given back.
    std::span<const Held> copies = {};
    // Set: the bytes come from the tier below, and the commit fails with kCancelled if it is true by then.
    const std::atomic<bool>* restore_cancelled = nullptr;
  };
  // The object that readers see afterwards, pinned for `pin_for`: the reservation's, or the one that had the key
  // already (the reservation's space is then free). kPermissionDenied: it isn't the caller's reservation, or no longer.
  // An error leaves the reservation as it was.
  Result<Held> commit(const Commit& commit) NMC_EXCLUDES(mutex_);
  // For a reader whose lock-free lookup didn't settle.
  std::optional<Held> pin(std::string_view key, const PinTable& pin_for, std::uint64_t stamp) NMC_EXCLUDES(mutex_);

  enum class Removal { kRemoved, kAbsent, kLeased };
  // `force`: whatever its lease.
  Removal remove(std::string_view key, bool force = true) NMC_EXCLUDES(mutex_);
  std::vector<std::string> keys() NMC_EXCLUDES(mutex_);         // of all that can be found
  std::vector<std::string> parked_keys() NMC_EXCLUDES(mutex_);  // of all that can't, since it is parked
  struct Replica {
    std::string segment;  // its name
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Replica> replicas(std::string_view key) NMC_EXCLUDES(mutex_);

  // Fills in what the master knows: all but the disk tier's.
  void fill_stats(StoreStats& stats) NMC_EXCLUDES(mutex_);
  // The same without the pins, for which fill_stats() looks at each object while everybody waits.
  void fill_counters(StoreStats& stats) NMC_EXCLUDES(mutex_);

  // Dying bytes that a client may keep pinned before its lookups miss; 0 is no limit.
  void set_limbo_cap(std::uint64_t bytes_per_client, std::uint32_t exempt_client) NMC_EXCLUDES(mutex_);
  std::uint64_t limbo_bytes_of(std::uint32_t client) NMC_EXCLUDES(mutex_);

 private:
  // A range of a segment.
  struct Placed {
    std::uint16_t segment = 0;
    Place place;
  };
  static constexpr std::uint32_t kNoEntry = ~std::uint32_t{0};
  // What the master keeps of an entry in use, beside the shared entry.
  struct Holding {
    Placed placed;
    std::optional<Place> key;  // of a key too long for the entry, in the same segment
    ObjectClass object_class = ObjectClass::kObject;
    EntryState state = EntryState::kFree;
    std::uint8_t order = 0;               // that it waits in, while committed; kNoOrder: it is hard-pinned
    std::uint32_t next_copy = kNoEntry;   // of the same object
    std::uint32_t first_copy = kNoEntry;  // of a further copy: the one that is found
    bool listed = false;                  // committed and to be found: not in a parked segment
    std::uint64_t last_read = 0;          // stamp of the last use by a client that is gone
    std::uint64_t reserved_at = 0;        // ticks
    std::uint64_t soft_until = 0;         // ticks; of what is soft-pinned
    bool by_client = false;               // see Wish
    bool held_by_pin = false;
  };
  static constexpr std::size_t kClasses = 3;
  static constexpr std::uint8_t kSoftOrder = kClasses, kNoOrder = kClasses + 1;
  struct MountedSegment {
    MountedSegment(Segment segment, std::size_t block_bytes, std::string name, std::uint64_t incarnation,
                   std::vector<std::uint32_t>& positions);
    Segment segment;  // bytes: whoever holds the reservation
    SegmentSpace space;
    std::string name;
    std::uint64_t incarnation;
    SegmentState state = SegmentState::kMounted;
    std::uint64_t parked_at = 0;                 // ticks
    std::size_t entries = 0;                     // that lie in it, dying ones too
    std::array<LruPolicy, kClasses + 1> orders;  // of what can be evicted: by class, then what is soft-pinned
  };
  struct Victim {
    std::uint32_t entry = 0;
    ObjectClass object_class = ObjectClass::kObject;
  };
  // Among which an entry is looked for that may go.
  struct Scope {
    unsigned classes = kAnyClass;
    std::span<const std::uint16_t> segments = {};
  };
  static constexpr unsigned kAnyClass = 0b111;
  static constexpr unsigned class_bit(ObjectClass object_class) { return 1u << static_cast<unsigned>(object_class); }

  MasterCore(const CoreOptions& options, SharedFiles files, TouchClock& clock, IndexWriter index);

  // adopting
  struct Range {
    std::uint16_t segment = 0;
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t entry = 0;
    bool is_key = false;
  };
  void adopt_clients_locked() NMC_REQUIRES(mutex_);
  Result<void> adopt_segments_locked() NMC_REQUIRES(mutex_);
  void adopt_entries_locked(Adopted& adopted) NMC_REQUIRES(mutex_);
  bool ranges_of_locked(std::uint32_t entry, std::vector<Range>& ranges) NMC_REQUIRES(mutex_);
  bool still_wanted_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void restore_places_locked(std::vector<Range>& ranges) NMC_REQUIRES(mutex_);
  std::vector<std::uint32_t> committed_once_locked() NMC_REQUIRES(mutex_);
  void adopt_copies_locked() NMC_REQUIRES(mutex_);

  // segments
  MountedSegment& segment_of(std::uint32_t entry) NMC_REQUIRES(mutex_) {
    return *segments_[holdings_[entry].placed.segment];
  }
  std::vector<std::uint16_t> mounted_locked() NMC_REQUIRES(mutex_);
  std::vector<std::uint16_t> choose_segments_locked(const Wish& wish) NMC_REQUIRES(mutex_);
  bool is_mounted_locked(std::string_view name) NMC_REQUIRES(mutex_);
  Result<std::uint32_t> add_segment(const SegmentId& id, std::string_view name, Segment segment)
      NMC_REQUIRES(mount_mutex_) NMC_EXCLUDES(mutex_);
  bool free_memory_for(std::string_view name, std::uint64_t bytes, std::uint64_t ended_before)
      NMC_EXCLUDES(gone_mutex_, mutex_);
  std::optional<std::uint16_t> find_parked_locked(std::optional<std::uint64_t> bytes) NMC_REQUIRES(mutex_);
  void set_state_locked(std::uint16_t number, SegmentState state) NMC_REQUIRES(mutex_);
  void revive_locked(std::uint16_t number, std::string_view name, std::uint32_t owner) NMC_REQUIRES(mutex_);
  void unmount_locked(std::uint16_t number) NMC_REQUIRES(mutex_);
  // Gives the memory of segments that have left back to the system, which takes it a second for some gigabytes: so not
  // under the lock, and a while after the client, whose close() would else be what takes that second.
  void let_go_of_gone() NMC_EXCLUDES(gone_mutex_, mutex_);
  void list_locked(std::uint32_t entry, std::uint64_t stamp) NMC_REQUIRES(mutex_);
  void mark_listed_locked(std::uint32_t entry, std::uint64_t stamp) NMC_REQUIRES(mutex_);
  void unlist_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void mark_unlisted_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void hide_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void forget_hidden_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void drop_hidden_locked(std::string_view key, std::uint64_t hash) NMC_REQUIRES(mutex_);
  std::uint8_t order_for_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  bool is_reservation_locked(std::uint32_t entry, std::uint64_t generation, std::optional<std::uint32_t> client)
      NMC_REQUIRES(mutex_);
  Result<void> set_segment_locked(std::uint32_t number, std::unique_ptr<MountedSegment> segment) NMC_REQUIRES(mutex_);
  void leave_segment_locked(std::uint16_t segment) NMC_REQUIRES(mutex_);

  // reserving
  Result<void> check_size_locked(ObjectClass object_class, std::size_t bytes) NMC_REQUIRES(mutex_);
  Result<Space> reserve_locked(const Wish& wish) NMC_REQUIRES(mutex_);
  Result<std::vector<Space>> reserve_each_locked(const Wish& wish, std::size_t count) NMC_REQUIRES(mutex_);
  bool may_go_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  bool could_hold_locked(std::size_t bytes, std::size_t count) NMC_REQUIRES(mutex_);
  bool is_lost_locked(std::uint32_t entry, const PinTable& owner, std::uint64_t now) NMC_REQUIRES(mutex_);
  void take_back_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  std::uint64_t tail_bytes_max_locked() NMC_REQUIRES(mutex_);
  Result<void> make_tail_room_locked(std::size_t bytes) NMC_REQUIRES(mutex_);
  Result<std::uint32_t> take_entry_locked() NMC_REQUIRES(mutex_);
  bool grow_index_locked() NMC_REQUIRES(mutex_);
  bool is_pool_block(ObjectClass object_class) const {
    return object_class == ObjectClass::kBlock && options_.block_bytes > 0;
  }
  std::uint64_t blocks_free_locked() NMC_REQUIRES(mutex_);
  Result<void> make_block_room_locked(std::size_t blocks) NMC_REQUIRES(mutex_);
  Result<Placed> place_block_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  Result<Placed> place_bytes_locked(std::size_t bytes, std::uint32_t entry, std::span<const std::uint16_t> segments,
                                    OffsetAllocator::Side side = OffsetAllocator::Side::kHigh) NMC_REQUIRES(mutex_);
  Result<bool> vacate_window_locked(std::size_t bytes, std::span<const std::uint16_t> segments) NMC_REQUIRES(mutex_);
  void abort_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void take_back_lost_locked() NMC_REQUIRES(mutex_);
  std::size_t blocks_available_locked() NMC_REQUIRES(mutex_);
  Failure no_room_locked(std::string_view what, std::size_t bytes) NMC_REQUIRES(mutex_);

  // committing
  std::optional<Held> pin_locked(std::string_view key, std::uint64_t hash, const PinTable& pin_for, std::uint64_t stamp)
      NMC_REQUIRES(mutex_);
  std::optional<std::uint32_t> find_locked(std::string_view key, std::uint64_t hash) NMC_REQUIRES(mutex_);
  bool key_equals_locked(std::uint32_t entry, std::string_view key) NMC_REQUIRES(mutex_);
  std::string key_of_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  Result<void> write_names_locked(std::uint32_t entry, const Commit& commit, std::uint64_t hash) NMC_REQUIRES(mutex_);
  std::vector<std::uint32_t> commit_copies_locked(const Commit& commit, std::uint64_t hash, EntryMeta meta)
      NMC_REQUIRES(mutex_);
  void link_copies_locked(std::uint32_t first, std::span<const std::uint32_t> copies) NMC_REQUIRES(mutex_);
  std::vector<std::uint32_t> copies_of_locked(std::uint32_t first) NMC_REQUIRES(mutex_);
  // Who found `from` finds `to`, at no moment neither.
  void hand_over_locked(std::uint32_t from, std::uint32_t to, std::uint64_t stamp) NMC_REQUIRES(mutex_);
  void promote_copy_locked(std::uint32_t first) NMC_REQUIRES(mutex_);
  void drop_copy_locked(std::uint32_t copy) NMC_REQUIRES(mutex_);
  void kill_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  bool leased_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  std::uint64_t last_use_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);

  // evicting
  std::optional<Victim> find_victim_locked(const Scope& scope) NMC_REQUIRES(mutex_);
  std::optional<Victim> oldest_unpinned_locked(const Scope& scope, bool soft_too) NMC_REQUIRES(mutex_);
  std::optional<std::uint64_t> stamp_if_evictable_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  std::uint64_t ticks_ago_locked(Nanos ago) const NMC_REQUIRES(mutex_);
  std::uint64_t soft_until_locked(const Commit& commit, std::optional<std::uint32_t> replaced) NMC_REQUIRES(mutex_);
  void end_soft_pins_locked() NMC_REQUIRES(mutex_);
  void evict_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void retire_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void bury_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  void free_locked(std::uint32_t entry) NMC_REQUIRES(mutex_);
  bool sweep_limbo_locked() NMC_REQUIRES(mutex_);
  void fill_counters_locked(StoreStats& stats) NMC_REQUIRES(mutex_);

  const CoreOptions options_;
  TouchClock& clock_;
  SharedFiles files_;
  IndexWriter index_;  // writes: under mutex_; reads: anyone

  Mutex mount_mutex_;  // held for as long as a mount takes; before gone_mutex_
  Mutex gone_mutex_;   // held while the memory of segments goes back to the system; before mutex_
  Mutex mutex_;
  MasterObserver* observer_ NMC_GUARDED_BY(mutex_) = nullptr;
  Clients clients_ NMC_GUARDED_BY(mutex_);
  std::vector<Holding> holdings_ NMC_GUARDED_BY(mutex_);         // by entry
  std::vector<std::uint32_t> positions_ NMC_GUARDED_BY(mutex_);  // of entries in the order that they are in
  LruPolicy soft_ends_ NMC_GUARDED_BY(mutex_);                   // what is in a soft order, by when that ends
  std::vector<std::unique_ptr<MountedSegment>> segments_ NMC_GUARDED_BY(mutex_);  // by number; null: none
  std::vector<std::unique_ptr<MountedSegment>> gone_ NMC_GUARDED_BY(mutex_);      // let_go_of_gone() ends them
  std::uint64_t segments_ended_ NMC_GUARDED_BY(mutex_) = 0;                       // and counts
  std::vector<std::uint32_t> limbo_ NMC_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> handed_out_ NMC_GUARDED_BY(mutex_);  // reserved by_client; some are committed by now
  // Committed, but not to be found, since they lie in parked segments: entries by hash of key.
  std::unordered_multimap<std::uint64_t, std::uint32_t> hidden_ NMC_GUARDED_BY(mutex_);
  std::uint64_t next_generation_ NMC_GUARDED_BY(mutex_) = 1;
  std::uint64_t tail_bytes_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint64_t limbo_cap_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint32_t limbo_exempt_ NMC_GUARDED_BY(mutex_) = 0;
  StoreStats counters_ NMC_GUARDED_BY(mutex_);  // only its counters, and the gauges that change one by one

  Mutex fds_mutex_;                                               // taken after mutex_
  std::vector<UniqueFd> segment_fds_ NMC_GUARDED_BY(fds_mutex_);  // copies, by number
};

}  // namespace nmc::store
