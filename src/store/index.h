// The object index: a shared file, written by the master only, mapped read-only by clients. Layout: docs/formats.md,
// "Shared memory".
//
// A key leads through a slot table (open addressing, linear probing; a slot is {tag, entry number}) to an entry, which
// keeps its number for life. There are two slot tables. When tombstones fill the active one the master writes the other
// afresh and flips; a reader that found nothing looks whether a flip happened meanwhile and then starts again.
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
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/syscall.h"
#include "store/pin_table.h"

namespace nmc::store {

inline constexpr std::array<char, 8> kIndexMagic = {'N', 'M', 'C', 'I', 'N', 'D', 'X', '1'};
inline constexpr std::uint32_t kIndexVersion = 1;
inline constexpr std::uint32_t kIndexEntriesMax = std::uint32_t{1} << 28;

struct IndexHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t boot_id;  // of the store that made it; segments and pin tables carry the same
  std::uint32_t entry_bytes;
  std::uint32_t entry_count;
  std::uint32_t first_entry;   // number of this file's first entry; 0 in the first file
  std::uint32_t slot_count;    // of one slot table; a power of two
  std::uint64_t slots_offset;  // table 0, then table 1
  std::uint64_t entries_offset;
  alignas(64) SharedWord table_word;  // flips << 8 | number of the active table
  SharedWord epoch;                   // of the master that writes now
  SharedWord file_count;              // files of this index, 1 until it grows
  std::array<std::byte, 4096 - 88> padding;
};
static_assert(offsetof(IndexHeader, table_word) == 64 && sizeof(IndexHeader) == 4096);

inline constexpr std::size_t kInlineKeyWords = 9;
inline constexpr std::size_t kInlineKeyBytes = kInlineKeyWords * 8;

struct alignas(128) IndexEntry {
  SharedWord commit;                            // make_commit_word(); stored last
  SharedWord key_hash;                          // checksum64(key)
  SharedWord size;                              // of the object, bytes
  SharedWord checksum;                          // checksum64(bytes); valid with kChecksumValid
  SharedWord location;                          // segment << 48 | offset
  SharedWord owner;                             // who reserved it: epoch << 32 | client
  SharedWord meta;                              // key length | class << 16 | flags << 24
  std::array<SharedWord, kInlineKeyWords> key;  // zero-padded; a longer key: key[0] is its location in a segment
};
static_assert(sizeof(IndexEntry) == 128);

inline constexpr std::uint8_t kChecksumValid = 1;

struct EntryMeta {
  std::uint16_t key_bytes = 0;
  std::uint8_t object_class = 0;
  std::uint8_t flags = 0;
};
constexpr std::uint64_t pack_meta(EntryMeta meta) {
  return meta.key_bytes | std::uint64_t{meta.object_class} << 16 | std::uint64_t{meta.flags} << 24;
}
constexpr EntryMeta unpack_meta(std::uint64_t word) {
  return {static_cast<std::uint16_t>(word), static_cast<std::uint8_t>(word >> 16),
          static_cast<std::uint8_t>(word >> 24)};
}

struct Location {
  std::uint16_t segment = 0;
  std::uint64_t offset = 0;  // below 2^48
};
constexpr std::uint64_t pack_location(Location at) { return std::uint64_t{at.segment} << 48 | at.offset; }
constexpr Location unpack_location(std::uint64_t word) {
  return {static_cast<std::uint16_t>(word >> 48), word & ((std::uint64_t{1} << 48) - 1)};
}

// True when `entry` says that its key has `hash` and, if it is short enough to be inline, equals `key`. Any bytes that
// change while this looks belong to another generation: the caller re-reads the commit word.
bool entry_may_hold(const IndexEntry& entry, std::string_view key, std::uint64_t hash);

// A reader's view of a mapped index. Copyable; the mapping outlives it. Thread-safe.
class IndexView {
 public:
  // `file`: the whole file, 4096-aligned. Errors say what is wrong with it.
  static Result<IndexView> over(std::span<const std::byte> file);

  std::uint64_t boot_id() const { return header_->boot_id; }
  std::uint32_t entry_count() const { return entry_count_; }
  const IndexEntry& entry(std::uint32_t number) const { return entries_[number]; }

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

  const IndexHeader* header_ = nullptr;
  std::array<const SharedWord*, 2> slots_{};
  const IndexEntry* entries_ = nullptr;
  std::uint32_t entry_count_ = 0;
  std::uint32_t slot_mask_ = 0;
};

template <class Visit>
IndexView::ProbeEnd IndexView::probe(std::uint64_t hash, Visit&& visit) const {
  // Acquire pairs with the flip's release store: the new table is written. The slots' acquire loads pair with their
  // release stores: who sees a slot of the next rebuild also sees, below, that the table word has moved on.
  const std::uint64_t table = header_->table_word.load(std::memory_order_acquire);
  const SharedWord* slots = slots_[table & 1];
  std::uint32_t at = static_cast<std::uint32_t>(hash) & slot_mask_;
  for (std::uint32_t i = 0; i <= slot_mask_; ++i, at = (at + 1) & slot_mask_) {
    const std::uint64_t slot = slots[at].load(std::memory_order_acquire);
    if (slot == kEmptySlot) break;
    if ((slot ^ hash) >> 32 != 0) continue;
    const std::uint32_t entry = static_cast<std::uint32_t>(slot) - 1;
    if (entry < entry_count_ && visit(entry)) return ProbeEnd::kStopped;
  }
  return header_->table_word.load(std::memory_order_acquire) == table ? ProbeEnd::kMiss : ProbeEnd::kFlipped;
}

// The master's side. Not thread-safe (the master's lock guards it); readers in any process run beside it.
class IndexWriter {
 public:
  static Result<IndexWriter> create(std::uint32_t entry_count, std::uint64_t boot_id, std::uint64_t epoch);

  int fd() const { return fd_.get(); }
  const IndexView& view() const { return view_; }
  IndexEntry& entry(std::uint32_t number) { return entries_[number]; }
  std::uint64_t flips() const;

  // A FREE entry, or nothing when all are in use.
  std::optional<std::uint32_t> take_entry();
  // Back to the free ones; its commit word says FREE.
  void give_entry(std::uint32_t number);
  std::uint32_t entries_in_use() const { return view_.entry_count() - static_cast<std::uint32_t>(free_.size()); }

  // Lets probes for `hash` find the entry; before its commit word is published.
  void add_slot(std::uint64_t hash, std::uint32_t number);
  // Ends that; after its commit word says DYING.
  void drop_slot(std::uint64_t hash, std::uint32_t number);

 private:
  IndexWriter(UniqueFd fd, Mapping mapping, const IndexView& view);

  SharedWord* active_slots() const;
  void rebuild();

  UniqueFd fd_;
  Mapping mapping_;
  IndexView view_;
  IndexHeader* header_;
  std::array<SharedWord*, 2> slots_;
  IndexEntry* entries_;
  std::vector<std::uint32_t> free_;  // derived: what no slot and no reservation uses
  std::uint32_t live_slots_ = 0;
  std::uint32_t tombstones_ = 0;
};

}  // namespace nmc::store
