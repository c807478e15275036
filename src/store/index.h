// The object index: a shared file, written by the master only, mapped read-only by clients. Layout: docs/formats.md,
// "Shared memory".
//
// A key leads through a slot table (open addressing, linear probing; a slot is {tag, entry number}) to an entry, which
// keeps its number for life. When tombstones fill the active table the master writes another afresh and flips; a reader
// that found nothing looks whether a flip happened meanwhile and then starts again.
//
// The file has the address space for the most entries there can be and grows into it: memory is reserved for further
// entries, and for a larger pair of slot tables, before any number beyond the old ones is used. So a mapping is made
// once, an entry is found by its number alone, and growth costs readers nothing.
// Invariants:
//   1. From the store that publishes an entry's commit word until the one that takes it away, its slot is in the active
//      table, and between the key's home and that slot no slot ever turns empty. So a lookup that overlaps with neither
//      finds the key or sees a flip.
//   2. Whatever a reader takes from the file (entry numbers, offsets, lengths) is checked against bounds that it copied
//      and checked when it mapped the file. Damage gives a miss, not a fault.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/syscall.h"
#include "store/pin_table.h"
#include "store/shared_files.h"

namespace nmc::store {

inline constexpr std::array<char, 8> kIndexMagic = {'N', 'M', 'C', 'I', 'N', 'D', 'X', '1'};
inline constexpr std::uint32_t kIndexVersion = 3;
inline constexpr std::uint32_t kIndexEntriesMax = std::uint32_t{1} << 28;

inline constexpr std::size_t kSegmentsMax = 1024;
inline constexpr std::uint32_t kSlotTablesMax = 48;

enum class SegmentState : std::uint64_t {
  kLeaving = 0,  // what is in it is pinned still, or nothing is
  kMounted = 1,
  kParked = 2,  // its owner died: its objects aren't found, until another owner takes it over
};
constexpr std::uint64_t make_segment_word(std::uint64_t incarnation, SegmentState state) {
  return incarnation << 2 | static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t incarnation_of(std::uint64_t segment_word) { return segment_word >> 2; }
constexpr SegmentState segment_state_of(std::uint64_t segment_word) {
  return static_cast<SegmentState>(segment_word & 3);
}

struct IndexHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t boot_id;           // of the store that made it; segments and pin tables carry the same
  std::uint32_t entry_bytes;       // of an entry's two halves together
  std::uint32_t entry_count;       // the most there can be
  std::uint32_t first_slot_count;  // of slot tables 0 and 1, a power of two; tables 2k and 2k + 1 have this << k
  std::uint32_t table_count;
  std::uint64_t entries_offset;       // all first halves, then all others
  std::uint64_t slots_offset;         // table 0, then the others in order
  alignas(64) SharedWord table_word;  // flips << 8 | number of the active table
  SharedWord entries_ready;           // entries below have memory; only grows
  SharedWord epoch;                   // of the master that writes now
  SharedWord below;                   // 1: it may have more objects in a tier below memory, and can be asked
  std::array<std::byte, 4096 - 96> padding;
  // By segment number: incarnation << 2 | SegmentState. A number's next incarnation begins when nothing of the last one
  // is pinned any more.
  std::array<SharedWord, kSegmentsMax> segments;
};
static_assert(offsetof(IndexHeader, table_word) == 64 && offsetof(IndexHeader, segments) == 4096);

// An entry has two halves, which lie in arrays of their own, so that what is looked at often lies close together. The
// first is all that a look reads of a key of up to 40 bytes: a cache line.
inline constexpr std::size_t kFirstKeyWords = 5, kMoreKeyWords = 4, kInlineKeyWords = kFirstKeyWords + kMoreKeyWords;
inline constexpr std::size_t kInlineKeyBytes = kInlineKeyWords * 8;

struct alignas(64) IndexEntry {
  SharedWord commit;                           // make_commit_word(); stored last
  SharedWord location;                         // segment << 48 | offset
  SharedWord extent;                           // object's bytes | has a checksum << 47 | key's bytes << 48
  std::array<SharedWord, kFirstKeyWords> key;  // zero-padded; a longer key: key[0] is its location in a segment
};
struct alignas(64) IndexEntryRest {
  std::array<SharedWord, kMoreKeyWords> key;
  SharedWord key_hash;  // checksum64(key)
  SharedWord checksum;  // checksum64(bytes), if the entry has one
  SharedWord owner;     // who reserved it: epoch << 32 | client
  SharedWord meta;      // class | flags << 8 | next replica << 32
};
static_assert(sizeof(IndexEntry) == 64 && sizeof(IndexEntryRest) == 64);
inline constexpr std::size_t kIndexEntryBytes = sizeof(IndexEntry) + sizeof(IndexEntryRest);

// So that an object's offset and bytes fit into their bits.
inline constexpr std::uint64_t kSegmentBytesMax = std::uint64_t{1} << 46;

struct EntryExtent {
  std::uint64_t bytes = 0;  // of the object, below 2^47
  bool has_checksum = false;
  std::uint16_t key_bytes = 0;
};
constexpr std::uint64_t pack_extent(EntryExtent extent) {
  return extent.bytes | std::uint64_t{extent.has_checksum} << 47 | std::uint64_t{extent.key_bytes} << 48;
}
constexpr EntryExtent unpack_extent(std::uint64_t word) {
  return {word & ((std::uint64_t{1} << 47) - 1), (word >> 47 & 1) != 0, static_cast<std::uint16_t>(word >> 48)};
}

// Flags of an entry.
inline constexpr std::uint8_t kReplica = 1;  // another copy of an object; found through its first copy, has no slot
inline constexpr std::uint8_t kSoftPinned = 2;
inline constexpr std::uint8_t kHardPinned = 4;
inline constexpr std::uint8_t kHeldByPin = 8;  // of a reservation: its client has it pinned for as long as it wants it

struct EntryMeta {
  std::uint8_t object_class = 0;
  std::uint8_t flags = 0;
  std::uint32_t next_replica = 0;  // entry number + 1 of the next copy, 0: none
};
constexpr std::uint64_t pack_meta(EntryMeta meta) {
  return meta.object_class | std::uint64_t{meta.flags} << 8 | std::uint64_t{meta.next_replica} << 32;
}
constexpr EntryMeta unpack_meta(std::uint64_t word) {
  return {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
          static_cast<std::uint32_t>(word >> 32)};
}

struct Location {
  std::uint16_t segment = 0;
  std::uint64_t offset = 0;  // below 2^48
};
constexpr std::uint64_t pack_location(Location at) { return std::uint64_t{at.segment} << 48 | at.offset; }
constexpr Location unpack_location(std::uint64_t word) {
  return {static_cast<std::uint16_t>(word >> 48), word & ((std::uint64_t{1} << 48) - 1)};
}

// A reader's view of a mapped index. Copyable; the mapping outlives it. Thread-safe.
class IndexView {
 public:
  // `file`: the whole file, 4096-aligned. Errors say what is wrong with it.
  static Result<IndexView> over(std::span<const std::byte> file);

  std::uint64_t boot_id() const { return boot_id_; }
  std::uint64_t epoch() const { return header_->epoch.load(std::memory_order_acquire); }
  bool has_tier_below() const { return header_->below.load(std::memory_order_relaxed) != 0; }
  std::uint32_t entry_count() const { return entry_count_; }  // the most there can be
  std::uint32_t entries_ready() const {
    const std::uint64_t ready = header_->entries_ready.load(std::memory_order_acquire);
    return ready < entry_count_ ? static_cast<std::uint32_t>(ready) : entry_count_;
  }
  // Of a number below entries_ready().
  const IndexEntry& entry(std::uint32_t number) const { return entries_[number]; }
  const IndexEntryRest& rest(std::uint32_t number) const { return rests_[number]; }
  // Whether the entry says that it has this key; of one that isn't inline, that its key is as long and has `hash`. Any
  // bytes that change while this looks belong to another generation: the caller re-reads the commit word.
  bool may_hold(std::uint32_t number, std::string_view key, std::uint64_t hash) const;
  // The word of a segment number; 0 (never mounted) beyond the last.
  std::uint64_t segment_word(std::size_t segment) const {
    return segment < kSegmentsMax ? header_->segments[segment].load(std::memory_order_acquire) : 0;
  }

  // The first entry that a probe for this hash visits, or kNone. The beginning of a probe, for who wants to be quick:
  // what isn't there proves nothing.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t first(std::uint64_t hash) const;

  enum class ProbeEnd {
    kStopped,  // visit returned true
    kMiss,     // no more entries with the hash's tag
    kFlipped,  // the tables flipped meanwhile, so a miss proves nothing
  };
  // Calls visit(entry number) for every slot that may belong to a key with this hash, until it returns true.
  template <class Visit>
  ProbeEnd probe(std::uint64_t hash, Visit&& visit) const;

 private:
  friend class IndexWriter;
  static constexpr std::uint64_t kEmptySlot = 0;
  static constexpr std::uint64_t kTombstone = 0xffffffff;  // its entry number is out of bounds, so probes pass over it

  static constexpr std::uint64_t make_slot(std::uint64_t hash, std::uint32_t entry) {
    return (hash & 0xffffffff00000000u) | (std::uint64_t{entry} + 1);
  }

  struct SlotTable {
    const SharedWord* slots = nullptr;
    std::uint32_t mask = 0;
  };
  // A damaged word leads to some table, too.
  const SlotTable& table_of(std::uint64_t table_word) const {
    const std::uint64_t number = table_word & 0xff;
    return tables_[number < table_count_ ? number : 0];
  }

  const IndexHeader* header_ = nullptr;
  const IndexEntry* entries_ = nullptr;
  const IndexEntryRest* rests_ = nullptr;
  std::uint64_t boot_id_ = 0;
  std::uint32_t entry_count_ = 0;
  std::uint32_t table_count_ = 0;
  std::array<SlotTable, kSlotTablesMax> tables_{};
};

inline std::uint32_t IndexView::first(std::uint64_t hash) const {
  const SlotTable& table = table_of(header_->table_word.load(std::memory_order_acquire));
  const SharedWord* const slots = table.slots;
  const std::uint32_t mask = table.mask;
  for (std::uint32_t at = static_cast<std::uint32_t>(hash) & mask, i = 0; i <= mask; ++i, at = (at + 1) & mask) {
    const std::uint64_t slot = slots[at].load(std::memory_order_acquire);
    if (slot == kEmptySlot) break;
    if ((slot ^ hash) >> 32 != 0) continue;
    const std::uint32_t entry = static_cast<std::uint32_t>(slot) - 1;
    if (entry < entries_ready()) return entry;
  }
  return kNone;
}

template <class Visit>
IndexView::ProbeEnd IndexView::probe(std::uint64_t hash, Visit&& visit) const {
  // Acquire pairs with the flip's release store: the new table is written. The slots' acquire loads pair with their
  // release stores: who sees a slot of the next rebuild also sees, below, that the table word has moved on.
  const std::uint64_t table_word = header_->table_word.load(std::memory_order_acquire);
  const SlotTable table = table_of(table_word);
  std::uint32_t at = static_cast<std::uint32_t>(hash) & table.mask;
  for (std::uint32_t i = 0; i <= table.mask; ++i, at = (at + 1) & table.mask) {
    const std::uint64_t slot = table.slots[at].load(std::memory_order_acquire);
    if (slot == kEmptySlot) break;
    if ((slot ^ hash) >> 32 != 0) continue;
    const std::uint32_t entry = static_cast<std::uint32_t>(slot) - 1;
    if (entry < entries_ready() && visit(entry)) return ProbeEnd::kStopped;
  }
  return header_->table_word.load(std::memory_order_acquire) == table_word ? ProbeEnd::kMiss : ProbeEnd::kFlipped;
}

// The master's side. Not thread-safe (the master's lock guards it); readers in any process run beside it.
class IndexWriter {
 public:
  struct Entries {
    std::uint32_t initial = 0;  // that have memory at once
    std::uint32_t most = 0;     // 0: the initial ones
  };
  static Result<IndexWriter> create(SharedFiles& files, Entries entries, std::uint64_t boot_id);
  // Goes on with a file that another master, who is gone, wrote. Its entries are as they were left; none counts as
  // free, and the slot tables are not to be trusted until restore_slots().
  static Result<IndexWriter> adopt(UniqueFd fd);
  static constexpr const char* kFileName = "index";

  int fd() const { return fd_.get(); }
  const IndexView& view() const { return view_; }
  IndexEntry& entry(std::uint32_t number) { return entries_[number]; }
  IndexEntryRest& rest(std::uint32_t number) { return rests_[number]; }
  std::uint64_t key_hash(std::uint32_t number) const { return rests_[number].key_hash.load(std::memory_order_relaxed); }
  EntryExtent extent(std::uint32_t number) const {
    return unpack_extent(entries_[number].extent.load(std::memory_order_relaxed));
  }
  void set_extent(std::uint32_t number, EntryExtent extent) {
    entries_[number].extent.store(pack_extent(extent), std::memory_order_release);
  }
  EntryMeta meta(std::uint32_t number) const {
    return unpack_meta(rests_[number].meta.load(std::memory_order_relaxed));
  }
  void set_meta(std::uint32_t number, EntryMeta meta) {
    rests_[number].meta.store(pack_meta(meta), std::memory_order_release);
  }
  // Of a key of up to kInlineKeyBytes.
  void write_key(std::uint32_t number, std::string_view key);
  std::string read_key(std::uint32_t number, std::size_t bytes) const;
  std::uint64_t epoch() const { return view_.epoch(); }
  void set_tier_below(bool there) { header_->below.store(there ? 1 : 0, std::memory_order_relaxed); }
  std::uint64_t flips() const;
  void set_segment_word(std::size_t segment, std::uint64_t word) {
    header_->segments[segment].store(word, std::memory_order_release);
  }

  // A FREE entry, or nothing when all that have memory are in use.
  std::optional<std::uint32_t> take_entry();
  // Back to the free ones; its commit word says FREE.
  void give_entry(std::uint32_t number);
  std::uint32_t entries_in_use() const { return view_.entries_ready() - static_cast<std::uint32_t>(free_.size()); }

  // Memory for entries up to `ready`, and larger slot tables where they need them. The pin tables have theirs already.
  // An error leaves all as it was.
  Result<void> grow(std::uint32_t ready);

  // Lets probes for `hash` find the entry; before its commit word is published.
  void add_slot(std::uint64_t hash, std::uint32_t number);
  // Ends that; after its commit word says DYING.
  void drop_slot(std::uint64_t hash, std::uint32_t number);
  // Probes that found entry `from` find `to` instead, without a moment at which they find neither. Both are committed.
  void move_slot(std::uint64_t hash, std::uint32_t from, std::uint32_t to);
  // Makes these entries, by their hashes, the only ones that are found.
  void restore_slots(std::span<const std::uint32_t> entries);

 private:
  struct SlotTable {
    SharedWord* slots = nullptr;
    std::uint32_t mask = 0;
  };

  IndexWriter(UniqueFd fd, Mapping mapping, const IndexView& view);

  SlotTable table(std::uint32_t number) const;
  std::uint32_t active() const;
  std::uint32_t size_class_for(std::uint32_t entries) const;
  Result<void> reserve_tables(std::uint32_t size_class);
  std::uint64_t rests_offset() const;
  SharedWord& key_word(std::uint32_t number, std::size_t i) const {
    return i < kFirstKeyWords ? entries_[number].key[i] : rests_[number].key[i - kFirstKeyWords];
  }
  // An emptied table of the size for the entries there are now, other than the active one.
  std::uint32_t find_slot(std::uint64_t hash, std::uint32_t number);
  std::uint32_t clear_next_table();
  void put_slot(const SlotTable& table, std::uint64_t hash, std::uint64_t slot);
  void flip_to(std::uint32_t table);
  void rebuild();

  UniqueFd fd_;
  Mapping mapping_;
  IndexView view_;
  IndexHeader* header_;
  IndexEntry* entries_;
  IndexEntryRest* rests_;
  std::vector<std::uint32_t> free_;  // derived: what no slot and no reservation uses
  std::uint32_t live_slots_ = 0;
  std::uint32_t tombstones_ = 0;
};

}  // namespace nmc::store
