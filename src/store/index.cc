#include "store/index.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t align_to_page(std::uint64_t bytes) { return (bytes + 4095) & ~std::uint64_t{4095}; }

// Twice the entries at least, so that probes stay short.
std::uint64_t slots_for(std::uint32_t entry_count) {
  return std::bit_ceil(std::max<std::uint64_t>(entry_count, 8) * 2);
}

// Of the slots before table `number`.
std::uint64_t slots_before(std::uint64_t first_slot_count, std::uint32_t number) {
  const std::uint32_t size_class = number / 2;
  return 2 * first_slot_count * ((std::uint64_t{1} << size_class) - 1) +
         (number & 1) * (first_slot_count << size_class);
}

std::uint64_t word_at(const char* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

std::uint64_t short_word(std::string_view key) {
  std::uint64_t word = 0;
  std::memcpy(&word, key.data(), key.size());
  return word;
}

}  // namespace

bool IndexView::may_hold(std::uint32_t number, std::string_view key, std::uint64_t hash) const {
  const IndexEntry& entry = entries_[number];
  if (unpack_extent(entry.extent.load(std::memory_order_acquire)).key_bytes != key.size()) return false;
  if (key.size() > kInlineKeyBytes) return rests_[number].key_hash.load(std::memory_order_acquire) == hash;
  const auto first = [&](std::size_t i) { return entry.key[i].load(std::memory_order_acquire); };
  if (key.size() < 8) return first(0) == short_word(key);
  const auto more = [&](std::size_t i) { return rests_[number].key[i].load(std::memory_order_acquire); };
  const std::size_t words = key.size() / 8, rest = key.size() % 8;
  std::uint64_t differ = 0;
  const auto compare = [&](std::uint64_t stored, std::size_t i) { differ |= stored ^ word_at(key.data() + 8 * i); };
  // The key's last eight bytes, less those that are in whole words: no call for a few bytes. What differs is gathered
  // rather than asked for word by word: almost always nothing does.
  if (rest != 0) {
    const std::uint64_t last = words < kFirstKeyWords ? first(words) : more(words - kFirstKeyWords);
    differ = last ^ word_at(key.data() + key.size() - 8) >> (64 - 8 * rest);
  }
  static_assert(kFirstKeyWords == 5 && kMoreKeyWords == 4);
  switch (words) {
    case 9: compare(more(3), 8); [[fallthrough]];
    case 8: compare(more(2), 7); [[fallthrough]];
    case 7: compare(more(1), 6); [[fallthrough]];
    case 6: compare(more(0), 5); [[fallthrough]];
    case 5: compare(first(4), 4); [[fallthrough]];
    case 4: compare(first(3), 3); [[fallthrough]];
    case 3: compare(first(2), 2); [[fallthrough]];
    case 2: compare(first(1), 1); [[fallthrough]];
    default: compare(first(0), 0);
  }
  return differ == 0;
}

Result<IndexView> IndexView::over(std::span<const std::byte> file) {
  if (file.size() < sizeof(IndexHeader)) return corrupt("index: {} bytes, expected at least a header", file.size());
  const auto* header = reinterpret_cast<const IndexHeader*>(file.data());
  if (header->magic != kIndexMagic) return corrupt("index: wrong magic");
  if (header->version != kIndexVersion) {
    return version_mismatch("index: version {}, expected {}", header->version, kIndexVersion);
  }
  const std::uint64_t entries = header->entry_count;
  const std::uint64_t slots = header->first_slot_count;
  const std::uint32_t tables = header->table_count;
  if (header->header_bytes != sizeof(IndexHeader) || header->entry_bytes != kIndexEntryBytes ||
      header->file_bytes != file.size()) {
    return corrupt("index: header doesn't describe a file of {} bytes", file.size());
  }
  if (entries == 0 || entries > kIndexEntriesMax || !std::has_single_bit(slots) || tables == 0 || tables % 2 != 0 ||
      tables > kSlotTablesMax || slots << (tables / 2 - 1) <= entries || slots << (tables / 2 - 1) > UINT32_MAX) {
    return corrupt("index: {} entries and {} slot tables from {} slots on", entries, tables, slots);
  }
  const std::uint64_t slot_bytes = slots_before(slots, tables) * sizeof(SharedWord);
  const std::uint64_t entry_bytes = entries * kIndexEntryBytes;
  if (header->entries_offset < sizeof(IndexHeader) || header->entries_offset % alignof(IndexEntry) != 0 ||
      header->slots_offset % 64 != 0 || header->entries_offset > file.size() ||
      entry_bytes > file.size() - header->entries_offset ||
      header->slots_offset < header->entries_offset + entry_bytes || header->slots_offset > file.size() ||
      slot_bytes > file.size() - header->slots_offset) {
    return corrupt("index: entries at {} and slots at {} don't fit {} bytes", header->entries_offset,
                   header->slots_offset, file.size());
  }
  IndexView view;
  view.header_ = header;
  view.entries_ = reinterpret_cast<const IndexEntry*>(file.data() + header->entries_offset);
  view.rests_ = reinterpret_cast<const IndexEntryRest*>(view.entries_ + entries);
  view.boot_id_ = header->boot_id;
  view.entry_count_ = header->entry_count;
  view.table_count_ = tables;
  const auto* first = reinterpret_cast<const SharedWord*>(file.data() + header->slots_offset);
  for (std::uint32_t number = 0; number < tables; ++number) {
    view.tables_[number] = {first + slots_before(slots, number), static_cast<std::uint32_t>((slots << number / 2) - 1)};
  }
  return view;
}

Result<IndexWriter> IndexWriter::create(SharedFiles& files, Entries entries, std::uint64_t boot_id) {
  const std::uint32_t most = std::max(entries.most, entries.initial);
  if (entries.initial == 0 || most > kIndexEntriesMax) {
    return invalid_argument("index: {} to {} entries, expected 1 to {}", entries.initial, most, kIndexEntriesMax);
  }
  const std::uint64_t slots = slots_for(entries.initial);
  std::uint32_t tables = 2;
  while (slots << (tables / 2 - 1) < slots_for(most)) tables += 2;
  const std::uint64_t entries_offset = sizeof(IndexHeader);
  const std::uint64_t slots_offset = align_to_page(entries_offset + std::uint64_t{most} * kIndexEntryBytes);
  const std::uint64_t bytes = align_to_page(slots_offset + slots_before(slots, tables) * sizeof(SharedWord));
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, files.create(kFileName, bytes));
  NMC_RETURN_IF_ERROR(reserve_memory(fd.get(), 0, sizeof(IndexHeader), "the index"));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "index"));
  auto* header = reinterpret_cast<IndexHeader*>(mapping.data());  // the file's zeros are empty slots and free entries
  header->magic = kIndexMagic;
  header->version = kIndexVersion;
  header->header_bytes = sizeof(IndexHeader);
  header->file_bytes = bytes;
  header->boot_id = boot_id;
  header->entry_bytes = kIndexEntryBytes;
  header->entry_count = most;
  header->first_slot_count = static_cast<std::uint32_t>(slots);
  header->table_count = tables;
  header->entries_offset = entries_offset;
  header->slots_offset = slots_offset;
  header->epoch.store(1, std::memory_order_relaxed);
  NMC_ASSIGN_OR_RETURN(const IndexView view, IndexView::over(mapping.bytes()));
  IndexWriter writer(std::move(fd), std::move(mapping), view);
  NMC_RETURN_IF_ERROR(writer.reserve_tables(0));
  NMC_RETURN_IF_ERROR(writer.grow(entries.initial));
  return writer;
}

Result<IndexWriter> IndexWriter::adopt(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failure(os_error("stat", "index"));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), static_cast<std::size_t>(info.st_size),
                                                     Mapping::Access::kReadWrite, "index"));
  NMC_ASSIGN_OR_RETURN(const IndexView view, IndexView::over(mapping.bytes()));
  IndexWriter writer(std::move(fd), std::move(mapping), view);
  // What has memory already keeps it; a file that was copied or cut gets it back before it is touched.
  const std::uint32_t ready = view.entries_ready();
  const IndexHeader& header = *writer.header_;
  NMC_RETURN_IF_ERROR(
      keep_memory(writer.fd(), 0, header.entries_offset + std::uint64_t{ready} * sizeof(IndexEntry), "the index"));
  NMC_RETURN_IF_ERROR(
      keep_memory(writer.fd(), writer.rests_offset(), std::uint64_t{ready} * sizeof(IndexEntryRest), "the index"));
  const std::uint32_t tables = 2 * writer.size_class_for(ready) + 2;
  NMC_RETURN_IF_ERROR(keep_memory(writer.fd(), header.slots_offset,
                                  slots_before(header.first_slot_count, tables) * sizeof(SharedWord), "the index"));
  writer.header_->epoch.fetch_add(1, std::memory_order_acq_rel);
  return writer;
}

IndexWriter::IndexWriter(UniqueFd fd, Mapping mapping, const IndexView& view)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      view_(view),
      header_(reinterpret_cast<IndexHeader*>(mapping_.data())),
      entries_(reinterpret_cast<IndexEntry*>(mapping_.data() + header_->entries_offset)),
      rests_(reinterpret_cast<IndexEntryRest*>(mapping_.data() + rests_offset())) {}

std::uint64_t IndexWriter::rests_offset() const {
  return header_->entries_offset + std::uint64_t{view_.entry_count()} * sizeof(IndexEntry);
}

std::uint64_t IndexWriter::flips() const { return header_->table_word.load(std::memory_order_relaxed) >> 8; }

IndexWriter::SlotTable IndexWriter::table(std::uint32_t number) const {
  const IndexView::SlotTable& seen = view_.table_of(number);
  return {const_cast<SharedWord*>(seen.slots), seen.mask};  // our mapping is writable, the view's type is a reader's
}

std::uint32_t IndexWriter::active() const {
  return static_cast<std::uint32_t>(header_->table_word.load(std::memory_order_relaxed) & 0xff);
}

std::uint32_t IndexWriter::size_class_for(std::uint32_t entries) const {
  std::uint32_t size_class = 0;
  while (std::uint64_t{header_->first_slot_count} << size_class < slots_for(entries)) ++size_class;
  return size_class;
}

Result<void> IndexWriter::reserve_tables(std::uint32_t size_class) {
  const std::uint64_t begin = slots_before(header_->first_slot_count, 2 * size_class) * sizeof(SharedWord);
  const std::uint64_t end = slots_before(header_->first_slot_count, 2 * size_class + 2) * sizeof(SharedWord);
  return reserve_memory(fd_.get(), header_->slots_offset + begin, end - begin, "the index's slots");
}

Result<void> IndexWriter::grow(std::uint32_t ready) {
  const std::uint32_t before = view_.entries_ready();
  NMC_REQUIRE(ready > before && ready <= view_.entry_count(), "{} entries, {} wanted", before, ready);
  const auto reserve_halves = [&](std::uint64_t array, std::size_t half_bytes) {
    const std::uint64_t begin = array + std::uint64_t{before} * half_bytes;
    return reserve_memory(fd_.get(), begin, std::uint64_t{ready - before} * half_bytes, "the index's entries");
  };
  NMC_RETURN_IF_ERROR(reserve_halves(header_->entries_offset, sizeof(IndexEntry)));
  NMC_RETURN_IF_ERROR(reserve_halves(rests_offset(), sizeof(IndexEntryRest)));
  const std::uint32_t size_class = size_class_for(ready);
  if (size_class != active() / 2) NMC_RETURN_IF_ERROR(reserve_tables(size_class));
  for (std::uint32_t number = ready; number > before; --number) free_.push_back(number - 1);
  header_->entries_ready.store(ready, std::memory_order_release);
  if (size_class != active() / 2) rebuild();
  return {};
}

std::optional<std::uint32_t> IndexWriter::take_entry() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t number = free_.back();
  free_.pop_back();
  return number;
}

void IndexWriter::give_entry(std::uint32_t number) { free_.push_back(number); }

void IndexWriter::write_key(std::uint32_t number, std::string_view key) {
  NMC_REQUIRE(key.size() <= kInlineKeyBytes, "bytes={}", key.size());
  std::array<std::uint64_t, kInlineKeyWords> words{};
  std::memcpy(words.data(), key.data(), key.size());
  for (std::size_t i = 0; i < words.size(); ++i) key_word(number, i).store(words[i], std::memory_order_release);
}

std::string IndexWriter::read_key(std::uint32_t number, std::size_t bytes) const {
  NMC_REQUIRE(bytes <= kInlineKeyBytes, "bytes={}", bytes);
  std::array<std::uint64_t, kInlineKeyWords> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = key_word(number, i).load(std::memory_order_relaxed);
  return std::string(reinterpret_cast<const char*>(words.data()), bytes);
}

void IndexWriter::put_slot(const SlotTable& table, std::uint64_t hash, std::uint64_t slot) {
  std::uint32_t at = static_cast<std::uint32_t>(hash) & table.mask;
  for (;; at = (at + 1) & table.mask) {
    const std::uint64_t there = table.slots[at].load(std::memory_order_relaxed);
    if (there == IndexView::kTombstone) --tombstones_;
    if (there == IndexView::kTombstone || there == IndexView::kEmptySlot) break;
  }
  table.slots[at].store(slot, std::memory_order_release);
  ++live_slots_;
}

void IndexWriter::add_slot(std::uint64_t hash, std::uint32_t number) {
  // A quarter of the table stays empty, whatever the tombstones.
  if (std::uint64_t{live_slots_} + tombstones_ + 1 > (std::uint64_t{table(active()).mask} + 1) * 3 / 4) rebuild();
  put_slot(table(active()), hash, IndexView::make_slot(hash, number));
}

std::uint32_t IndexWriter::find_slot(std::uint64_t hash, std::uint32_t number) {
  const auto [slots, mask] = table(active());
  const std::uint64_t wanted = IndexView::make_slot(hash, number);
  std::uint32_t at = static_cast<std::uint32_t>(hash) & mask;
  for (std::uint64_t slot; (slot = slots[at].load(std::memory_order_relaxed)) != wanted; at = (at + 1) & mask) {
    NMC_ASSERT(slot != IndexView::kEmptySlot, "entry {} has no slot", number);
  }
  return at;
}

void IndexWriter::move_slot(std::uint64_t hash, std::uint32_t from, std::uint32_t to) {
  table(active()).slots[find_slot(hash, from)].store(IndexView::make_slot(hash, to), std::memory_order_release);
}

void IndexWriter::drop_slot(std::uint64_t hash, std::uint32_t number) {
  const auto [slots, mask] = table(active());
  std::uint32_t at = find_slot(hash, number);
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

std::uint32_t IndexWriter::clear_next_table() {
  const std::uint32_t size_class = size_class_for(view_.entries_ready());
  const std::uint32_t next = size_class == active() / 2 ? active() ^ 1 : 2 * size_class;
  const SlotTable to = table(next);
  // Release: a reader that still probes this table from before the last flip and sees one of these stores also sees
  // that flip, and starts again.
  for (std::uint64_t at = 0; at <= to.mask; ++at) to.slots[at].store(IndexView::kEmptySlot, std::memory_order_release);
  live_slots_ = tombstones_ = 0;
  return next;
}

void IndexWriter::flip_to(std::uint32_t table) {
  header_->table_word.store((flips() + 1) << 8 | table, std::memory_order_release);
}

void IndexWriter::rebuild() {
  const SlotTable from = table(active());
  const std::uint32_t next = clear_next_table();
  for (std::uint64_t i = 0; i <= from.mask; ++i) {
    const std::uint64_t slot = from.slots[i].load(std::memory_order_relaxed);
    if (slot == IndexView::kEmptySlot || slot == IndexView::kTombstone) continue;
    put_slot(table(next), key_hash(static_cast<std::uint32_t>(slot) - 1), slot);
  }
  flip_to(next);
}

void IndexWriter::restore_slots(std::span<const std::uint32_t> entries) {
  const std::uint32_t next = clear_next_table();
  for (const std::uint32_t number : entries) {
    put_slot(table(next), key_hash(number), IndexView::make_slot(key_hash(number), number));
  }
  flip_to(next);
}

}  // namespace nmc::store
