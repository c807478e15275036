// The object store of a node as the engine sees it. It is also the block pool: a KV block is reserved here, filled in
// place and committed under its key when it is full; a prefix hit pins committed blocks and reads them where they lie.
//
// An object has a key (up to kKeyBytesMax bytes), a size, a generation (64-bit, store-wide, never reused), a checksum
// and a class. It is immutable after commit. A read is right or it is a miss: a Pin keeps its object where it is, and
// evictor and remover wait for nobody (a pinned victim goes to limbo and is freed with its last pin).
//
// Underneath lie the shared structures of index.h, pin_table.h and segment.h. Their master lives in this process
// (embedded_store.h), or is the node's, which several processes share (node_store.h). All methods are thread-safe;
// lookups take no lock and send no message.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "store/pin_protocol.h"

namespace nmc::store {

inline constexpr std::size_t kKeyBytesMax = 4096;

// What an object is for; each class has its own extents, so that blocks of one size never fragment among others.
enum class ObjectClass : std::uint8_t {
  kBlock = 0,   // full KV block, StoreOptions::block_bytes long
  kTail = 1,    // end of a finished prompt; all of them together stay below StoreOptions::tail_bytes
  kObject = 2,  // anything else
};

// Where a read found its bytes.
enum class Source : std::uint8_t { kDram, kDisk, kRemote };

class Store;
class SharedStoreReader;  // a client's side of the shared structures: shared_reader.h

// A committed object held in place: bytes() stay valid and unchanged until the Pin goes; they are mapped read-only.
// Moves, never copies. May outlive nothing: destroy all pins before their Store. Safe to destroy on any thread.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept { take(other); }
  Pin& operator=(Pin&& other) noexcept {
    if (this == &other) return *this;
    if (word_ != nullptr) unpin();
    take(other);
    return *this;
  }
  ~Pin() {
    if (word_ != nullptr) unpin();
  }

  explicit operator bool() const { return word_ != nullptr; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::uint64_t generation() const { return generation_; }
  Source source() const { return source_; }
  void set_source(Source source) { source_ = source; }  // for who fetched it
  // Another pin on the same object. One client can hold 65,535 pins on an object; a lookup beyond that misses, and this
  // stops the process.
  Pin duplicate() const;

 private:
  friend class SharedStoreReader;
  void unpin() { Pins::unpin(*word_); }
  void take(Pin& other) {
    word_ = std::exchange(other.word_, nullptr);
    source_ = other.source_;
    generation_ = other.generation_;
    bytes_ = std::exchange(other.bytes_, {});
  }
  std::atomic<std::uint64_t>* word_ = nullptr;  // the object's word in the holder's pin table
  Source source_ = Source::kDram;
  std::uint64_t generation_ = 0;
  std::span<const std::byte> bytes_;
};

// Space that its holder fills. Without a key it is invisible to all others. Destroying it gives the space back (abort).
// Moves, never copies. The holder alone writes; content is undefined until written.
class Reservation {
 public:
  struct Parts {
    std::uint32_t entry = 0;
    ObjectClass object_class = ObjectClass::kObject;
    std::uint64_t generation = 0;
    std::span<std::byte> bytes;
    std::uint64_t home = 0;  // which of the stores that `store` has been a member of
  };

  Reservation() = default;
  Reservation(Store& store, const Parts& parts) : store_(&store), parts_(parts) {}  // for stores
  Reservation(Reservation&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), parts_(std::exchange(other.parts_, {})) {}
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  explicit operator bool() const { return store_ != nullptr; }
  std::span<std::byte> bytes() const { return parts_.bytes; }
  ObjectClass object_class() const { return parts_.object_class; }
  // That the object will have when this is committed and wins.
  std::uint64_t generation() const { return parts_.generation; }

  // For stores:
  const Store* store() const { return store_; }
  const Parts& parts() const { return parts_; }
  void forget() {  // its space is an object's now
    store_ = nullptr;
    parts_ = {};
  }

 private:
  Store* store_ = nullptr;
  Parts parts_;
};

struct StoreOptions {
  std::size_t dram_bytes = std::size_t{1} << 30;  // the segment; its pages are reserved at creation
  std::size_t block_bytes = 0;                    // size of kBlock objects; 0: there are none
  std::optional<std::size_t> tail_bytes;  // cap of kTail objects together; default dram_bytes / 20, 0: none kept
  std::size_t index_entries = 0;          // 0: derived from dram_bytes and block_bytes
  Path disk_dir;                          // empty: no disk tier
  std::uint64_t disk_bytes = std::uint64_t{8} << 30;
  const Clock* clock = &real_clock();  // outlives the store
  // "": the master lives in this process. "unix:PATH": it is the node's that answers there, dram_bytes are brought to
  // it (0: none), tail and disk are its own matter. "HOST:PORT": as "", and that store is a tier below memory and disk.
  std::string server;
  std::string token;  // of that server
  Path tls_ca;        // over TCP: the authority of its certificate; "": without TLS
};

// Whether a put's object is evicted after all those that aren't soft-pinned, until that ends some time after its
// commit.
enum class SoftPin : std::uint8_t {
  kKeep,  // as the object is that it replaces, for what is left of its time; without one it isn't
  kPin,
  kDrop,
};

// Counters since creation and gauges of now; a consistent-enough snapshot for metrics.
struct StoreStats {
  // gauges
  std::uint64_t segment_bytes = 0, used_bytes = 0, tail_bytes = 0, limbo_bytes = 0;
  std::uint64_t blocks_total = 0;     // kBlock-sized pieces the segment can hold
  std::uint64_t blocks_reserved = 0;  // held by reservations
  std::uint64_t blocks_cached = 0;    // committed, pinned or not
  std::uint64_t blocks_pinned = 0;    // committed and pinned now
  std::uint64_t objects = 0;          // committed, all classes
  std::uint64_t soft_pinned = 0;      // of those
  std::uint64_t pins = 0, reservations = 0;
  // counters
  std::uint64_t commits = 0, commit_duplicates = 0, aborts = 0, removes = 0;
  std::uint64_t evicted_objects = 0, evicted_bytes = 0, evict_skipped_pinned = 0;
  std::uint64_t evict_attempts = 0, evict_failures = 0;     // searches for what may go; those that found nothing
  std::uint64_t lookups = 0, hits = 0, misses = 0;          // of objects in memory, by all clients
  std::uint64_t index_entries = 0, index_entries_used = 0;  // gauges; used: objects, reservations, limbo
  std::uint64_t index_rebuilds = 0;
  // disk tier; zero without one
  bool disk = false;
  std::uint64_t disk_objects = 0, disk_used_bytes = 0, disk_cap_bytes = 0;
  std::uint64_t disk_written_bytes = 0, disk_read_bytes = 0, disk_hits = 0, disk_write_dropped = 0;
  std::uint64_t disk_errors = 0, quarantined_entries = 0, quarantined_bytes = 0;
  // remote tier; zero without one
  bool remote = false;
  std::uint64_t remote_written_bytes = 0, remote_read_bytes = 0, remote_hits = 0, remote_write_dropped = 0;
  std::uint64_t remote_errors = 0;
};

// The longest readable run of a chain of keys.
struct Run {
  std::vector<Pin> pins;                       // pins[i] holds keys[i]
  std::size_t from_disk = 0, from_remote = 0;  // how many of them came from there
  std::string stop_reason;                     // why it ended before the last key: "" (a plain miss) or what went wrong
};

class Store {
 public:
  // The kind that options.server names. Fails when the memory can't be reserved, the disk folder is unusable (in use by
  // a live process, other version), or the server can't be reached.
  static Result<std::unique_ptr<Store>> create(StoreOptions options);
  virtual ~Store() = default;  // all pins and reservations must be gone; flushes the disk tier
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Space for one object. Evicts what is unpinned, oldest first, to make room. kResourceExhausted: everything is pinned
  // or reserved (the message says how much of each); kInvalidArgument: larger than a segment could ever hold;
  // kUnavailable: the node's master doesn't answer.
  virtual Result<Reservation> reserve(ObjectClass object_class, std::size_t bytes) = 0;
  // `count` blocks or none.
  virtual Result<std::vector<Reservation>> reserve_blocks(std::size_t count) = 0;
  // How many blocks there is memory for, used or not.
  virtual std::size_t blocks_total() const = 0;

  // Publishes a filled reservation under `key` and pins it. When the key is taken already, the reservation's space is
  // given back and the result pins the existing object. Either way the returned pin is the object that readers see. On
  // failure the reservation stays with the caller, its bytes untouched.
  virtual Result<Pin> commit(Reservation&& reservation, std::string_view key) = 0;
  // The same without a pin to hold.
  virtual Result<void> put(ObjectClass object_class, std::string_view key, std::span<const std::byte> bytes) = 0;

  // Pins the object if it is in memory. Counts as a use.
  virtual std::optional<Pin> lookup(std::string_view key) = 0;
  // Memory, else the tiers below: restores it into a reservation first. An object of another size than `bytes` (0: any)
  // is a miss.
  virtual std::optional<Pin> fetch(std::string_view key, ObjectClass object_class, std::size_t bytes = 0) = 0;
  // The longest run of kBlock objects keys[0..] that was really read: memory first, the tiers below where that ends; a
  // fault ends the run, never fails it. Touches from the last to the first, so that a chain is evicted from its end.
  virtual Run fetch_run(std::span<const std::string> keys) = 0;
  // How many of keys[0..] are in memory or on disk now. A hint: nothing is pinned.
  virtual std::size_t probe_run(std::span<const std::string> keys) const = 0;

  // Counts as a use of all of them, the last one first, so that the chain they form is evicted from its end. For who
  // held a chain without fetching it (blocks it committed itself) and is about to drop it.
  virtual void touch_run(std::span<const Pin> chain) = 0;

  // True when the key was there. Readers that hold it keep reading; nobody finds it afterwards, not after a restart
  // either.
  virtual bool remove(std::string_view key) = 0;

  // Waits until all that was committed before the call is in the tiers below, on disk as the fsync policy has it. Ok at
  // once without any. kIo when writes failed or were dropped since the last flush.
  virtual Result<void> flush() = 0;
  virtual StoreStats stats() const = 0;
  // Pins and reservations that exist of this store, without asking anybody: 0 when its user has given all back. Walks
  // the index.
  virtual std::uint64_t held() const = 0;
  const StoreOptions& options() const { return options_; }

 protected:
  explicit Store(StoreOptions options) : options_(std::move(options)) {}
  const StoreOptions options_;

 private:
  friend class Reservation;
  virtual void give_back(const Reservation::Parts& parts) = 0;
};

}  // namespace nmc::store
