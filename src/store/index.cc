#include "store/index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t align_to_page(std::uint64_t bytes) { return (bytes + 4095) & ~std::uint64_t{4095}; }

// Twice the entries at least, so that probes stay short.
std::uint32_t slots_for(std::uint32_t entry_count) {
  return std::bit_ceil(std::max<std::uint32_t>(entry_count, 8) * 2);
}

}  // namespace

bool entry_may_hold(const IndexEntry& entry, std::string_view key, std::uint64_t hash) {
  if (entry.key_hash.load(std::memory_order_acquire) != hash) return false;
  if (unpack_meta(entry.meta.load(std::memory_order_acquire)).key_bytes != key.size()) return false;
  if (key.size() > kInlineKeyBytes) return true;
  const std::size_t whole_words = key.size() / 8, rest = key.size() % 8;
  for (std::size_t i = 0; i < whole_words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, key.data() + i * 8, 8);
    if (entry.key[i].load(std::memory_order_acquire) != word) return false;
  }
  if (rest == 0) return true;
  std::uint64_t word = 0;
  std::memcpy(&word, key.data() + whole_words * 8, rest);
  return entry.key[whole_words].load(std::memory_order_acquire) == word;
}

Result<IndexView> IndexView::over(std::span<const std::byte> file) {
  if (file.size() < sizeof(IndexHeader)) return corrupt("index: {} bytes, expected at least a header", file.size());
  const auto* header = reinterpret_cast<const IndexHeader*>(file.data());
  if (header->magic != kIndexMagic) return corrupt("index: wrong magic");
  if (header->version != kIndexVersion) {
    return version_mismatch("index: version {}, expected {}", header->version, kIndexVersion);
  }
  const std::uint64_t entries = header->entry_count;
  const std::uint64_t slots = header->slot_count;
  if (header->header_bytes != sizeof(IndexHeader) || header->entry_bytes != sizeof(IndexEntry) ||
      header->file_bytes != file.size() || header->first_entry != 0) {
    return corrupt("index: header doesn't describe a file of {} bytes", file.size());
  }
  if (entries == 0 || entries > kIndexEntriesMax || !std::has_single_bit(slots) || slots <= entries) {
    return corrupt("index: {} entries and {} slots", entries, slots);
  }
  const std::uint64_t slot_bytes = 2 * slots * sizeof(SharedWord);
  const std::uint64_t entry_bytes = entries * sizeof(IndexEntry);
  if (header->slots_offset < sizeof(IndexHeader) || header->slots_offset % 64 != 0 ||
      header->entries_offset % alignof(IndexEntry) != 0 || header->slots_offset > file.size() ||
      slot_bytes > file.size() - header->slots_offset || header->entries_offset < header->slots_offset + slot_bytes ||
      header->entries_offset > file.size() || entry_bytes > file.size() - header->entries_offset) {
    return corrupt("index: slots at {} and entries at {} don't fit {} bytes", header->slots_offset,
                   header->entries_offset, file.size());
  }
  IndexView view;
  view.header_ = header;
  view.slots_[0] = reinterpret_cast<const SharedWord*>(file.data() + header->slots_offset);
  view.slots_[1] = view.slots_[0] + slots;
  view.entries_ = reinterpret_cast<const IndexEntry*>(file.data() + header->entries_offset);
  view.entry_count_ = header->entry_count;
  view.slot_mask_ = header->slot_count - 1;
  return view;
}

Result<IndexWriter> IndexWriter::create(std::uint32_t entry_count, std::uint64_t boot_id, std::uint64_t epoch) {
  if (entry_count == 0 || entry_count > kIndexEntriesMax) {
    return invalid_argument("index: {} entries, expected 1 to {}", entry_count, kIndexEntriesMax);
  }
  const std::uint32_t slots = slots_for(entry_count);
  const std::uint64_t slots_offset = sizeof(IndexHeader);
  const std::uint64_t entries_offset = align_to_page(slots_offset + 2 * std::uint64_t{slots} * sizeof(SharedWord));
  const std::uint64_t bytes = align_to_page(entries_offset + std::uint64_t{entry_count} * sizeof(IndexEntry));
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("nmc-index", bytes));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "index"));
  auto* header = reinterpret_cast<IndexHeader*>(mapping.data());  // the file's zeros are empty slots and free entries
  header->magic = kIndexMagic;
  header->version = kIndexVersion;
  header->header_bytes = sizeof(IndexHeader);
  header->file_bytes = bytes;
  header->boot_id = boot_id;
  header->entry_bytes = sizeof(IndexEntry);
  header->entry_count = entry_count;
  header->slot_count = slots;
  header->slots_offset = slots_offset;
  header->entries_offset = entries_offset;
  header->epoch.store(epoch, std::memory_order_relaxed);
  header->file_count.store(1, std::memory_order_relaxed);
  NMC_ASSIGN_OR_RETURN(const IndexView view, IndexView::over(mapping.bytes()));
  return IndexWriter(std::move(fd), std::move(mapping), view);
}

IndexWriter::IndexWriter(UniqueFd fd, Mapping mapping, const IndexView& view)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      view_(view),
      header_(reinterpret_cast<IndexHeader*>(mapping_.data())),
      entries_(reinterpret_cast<IndexEntry*>(mapping_.data() + header_->entries_offset)) {
  slots_[0] = reinterpret_cast<SharedWord*>(mapping_.data() + header_->slots_offset);
  slots_[1] = slots_[0] + header_->slot_count;
  free_.reserve(view_.entry_count());
  for (std::uint32_t number = view_.entry_count(); number > 0; --number) free_.push_back(number - 1);
}

std::uint64_t IndexWriter::flips() const { return header_->table_word.load(std::memory_order_relaxed) >> 8; }

SharedWord* IndexWriter::active_slots() const {
  return slots_[header_->table_word.load(std::memory_order_relaxed) & 1];
}

std::optional<std::uint32_t> IndexWriter::take_entry() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t number = free_.back();
  free_.pop_back();
  return number;
}

void IndexWriter::give_entry(std::uint32_t number) { free_.push_back(number); }

void IndexWriter::add_slot(std::uint64_t hash, std::uint32_t number) {
  // A quarter of the table stays empty, whatever the tombstones.
  if (std::uint64_t{live_slots_} + tombstones_ + 1 > (std::uint64_t{view_.slot_mask_} + 1) * 3 / 4) rebuild();
  SharedWord* slots = active_slots();
  std::uint32_t at = static_cast<std::uint32_t>(hash) & view_.slot_mask_;
  for (;; at = (at + 1) & view_.slot_mask_) {
    const std::uint64_t slot = slots[at].load(std::memory_order_relaxed);
    if (slot == IndexView::kTombstone) --tombstones_;
    if (slot == IndexView::kTombstone || slot == IndexView::kEmptySlot) break;
  }
  slots[at].store(IndexView::make_slot(hash, number), std::memory_order_release);
  ++live_slots_;
}

void IndexWriter::drop_slot(std::uint64_t hash, std::uint32_t number) {
  SharedWord* slots = active_slots();
  const std::uint32_t mask = view_.slot_mask_;
  const std::uint64_t wanted = IndexView::make_slot(hash, number);
  std::uint32_t at = static_cast<std::uint32_t>(hash) & mask;
  for (std::uint64_t slot; (slot = slots[at].load(std::memory_order_relaxed)) != wanted; at = (at + 1) & mask) {
    NMC_ASSERT(slot != IndexView::kEmptySlot, "entry {} has no slot", number);
  }
  slots[at].store(IndexView::kTombstone, std::memory_order_release);
  --live_slots_;
  ++tombstones_;
  // No chain goes on past a slot whose next one is empty, so tombstones at the end of a chain may turn empty.
  if (slots[(at + 1) & mask].load(std::memory_order_relaxed) != IndexView::kEmptySlot) return;
  while (slots[at].load(std::memory_order_relaxed) == IndexView::kTombstone) {
    slots[at].store(IndexView::kEmptySlot, std::memory_order_release);
    --tombstones_;
    at = (at - 1) & mask;
  }
}

void IndexWriter::rebuild() {
  const std::uint64_t table = header_->table_word.load(std::memory_order_relaxed);
  const SharedWord* from = slots_[table & 1];
  SharedWord* to = slots_[(table & 1) ^ 1];
  const std::uint32_t mask = view_.slot_mask_;
  // Release: a reader that still probes this table from before the last flip and sees one of these stores also sees
  // that flip, and starts again.
  for (std::uint32_t at = 0; at <= mask; ++at) to[at].store(IndexView::kEmptySlot, std::memory_order_release);
  for (std::uint32_t i = 0; i <= mask; ++i) {
    const std::uint64_t slot = from[i].load(std::memory_order_relaxed);
    if (slot == IndexView::kEmptySlot || slot == IndexView::kTombstone) continue;
    const std::uint64_t hash = entries_[static_cast<std::uint32_t>(slot) - 1].key_hash.load(std::memory_order_relaxed);
    std::uint32_t at = static_cast<std::uint32_t>(hash) & mask;
    while (to[at].load(std::memory_order_relaxed) != IndexView::kEmptySlot) at = (at + 1) & mask;
    to[at].store(slot, std::memory_order_release);
  }
  tombstones_ = 0;
  header_->table_word.store(((table >> 8) + 1) << 8 | ((table & 1) ^ 1), std::memory_order_release);
}

}  // namespace nmc::store
