#include "store/disk_log_index.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace nmc::store::disk {
namespace {

// What goes with a dead object: its payload and its lines in the record's table and the footer.
std::uint64_t cost(std::string_view key, std::uint64_t payload_bytes) {
  return payload_bytes + 2 * entry_bytes(key.size());
}

Slot slot_of(std::uint32_t number, const Entry& entry) {
  return {number, false, entry.sequence, entry.offset, entry.bytes, entry.checksum};
}

std::uint64_t alive(const FileUse& use) { return use.file->size() - std::min(use.dead_bytes, use.file->size()); }

}  // namespace

void DiskIndex::add_file(std::shared_ptr<LogFile> file) {
  const std::uint32_t number = file->number();
  const bool added = files_.emplace(number, FileUse{std::move(file)}).second;
  NMC_ASSERT(added, "file {} twice", number);
}

std::uint64_t DiskIndex::remove_file(std::uint32_t number) {
  const auto it = files_.find(number);
  NMC_ASSERT(it != files_.end(), "file {}", number);
  const std::uint64_t dropped = it->second.live_items;
  if (dropped > 0) {
    std::erase_if(slots_, [&](const auto& item) {
      if (item.second.file != number) return false;
      live_bytes_ -= item.second.bytes;
      return true;
    });
  }
  files_.erase(it);
  return dropped;
}

void DiskIndex::bury(std::string_view key, const Slot& slot) {
  FileUse& use = files_.at(slot.file);
  use.dead_bytes += cost(key, slot.bytes);
  --use.live_items;
  live_bytes_ -= slot.bytes;
}

void DiskIndex::apply(std::uint32_t number, const Entry& entry) {
  FileUse& use = files_.at(number);
  const auto it = slots_.find(entry.key);
  const bool newer = it == slots_.end() || it->second.sequence <= entry.sequence;
  if (entry.kind == EntryKind::kTombstone) {
    ++use.tombstones;
    if (it != slots_.end() && newer) erase(entry.key);
    return;
  }
  if (!newer) {
    use.dead_bytes += cost(entry.key, entry.bytes);
    return;
  }
  if (it != slots_.end()) bury(entry.key, it->second);
  ++use.live_items;
  live_bytes_ += entry.bytes;
  if (it != slots_.end())
    it->second = slot_of(number, entry);
  else
    slots_.emplace(entry.key, slot_of(number, entry));
}

void DiskIndex::replace_run(std::span<const std::shared_ptr<LogFile>> run, std::shared_ptr<LogFile> output,
                            std::span<const Move> moves, std::uint64_t tombstones) {
  constexpr std::uint32_t kNowhere = 0;  // file numbers start at 1
  FileUse use{output, 0, 0, tombstones};
  std::vector<Slot*> moved;
  for (const Move& move : moves) {
    const auto it = slots_.find(move.to.key);
    if (it == slots_.end() || !it->second.same_place(move.from)) {
      use.dead_bytes += cost(move.to.key, move.to.bytes);
      continue;
    }
    --files_.at(move.from.file).live_items;
    const bool read_recently = it->second.read_recently;
    it->second = slot_of(kNowhere, move.to.view());
    it->second.read_recently = read_recently;
    moved.push_back(&it->second);
  }
  for (const auto& file : run) remove_file(file->number());
  if (output == nullptr) return;
  use.live_items = moved.size();
  for (Slot* slot : moved) slot->file = output->number();
  files_.emplace(output->number(), std::move(use));
}

bool DiskIndex::erase(std::string_view key) {
  const auto it = slots_.find(key);
  if (it == slots_.end()) return false;
  bury(key, it->second);
  slots_.erase(it);
  return true;
}

const Slot* DiskIndex::find(std::string_view key) const {
  const auto it = slots_.find(key);
  return it == slots_.end() ? nullptr : &it->second;
}

std::vector<std::string> DiskIndex::keys() const {
  std::vector<std::string> keys;
  keys.reserve(slots_.size());
  for (const auto& [key, slot] : slots_) keys.push_back(key);
  return keys;
}

void DiskIndex::note_read(std::string_view key) {
  if (const auto it = slots_.find(key); it != slots_.end()) it->second.read_recently = true;
}

std::uint64_t DiskIndex::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [number, use] : files_) bytes += use.file->size();
  return bytes;
}

std::optional<std::uint32_t> DiskIndex::best_to_compact(std::uint64_t live_bytes_max) const {
  std::optional<std::uint32_t> best;
  std::uint64_t most = 0;
  for (const auto& [number, use] : files_) {
    if (use.dead_bytes <= most || use.dead_bytes < use.file->size() / 8 || alive(use) > live_bytes_max) continue;
    most = use.dead_bytes;
    best = number;
  }
  return best;
}

std::vector<std::uint32_t> DiskIndex::run_around(std::uint32_t number, std::uint64_t bytes_max,
                                                 std::uint32_t excluded) const {
  const auto middle = files_.find(number);
  std::uint64_t total = alive(middle->second);
  const auto joins = [&](const auto& item) {
    const std::uint64_t bytes = item.second.file->size();
    if (item.first == excluded || bytes > bytes_max / 4 || total + bytes > bytes_max) return false;
    total += bytes;
    return true;
  };
  auto first = middle, last = std::next(middle);
  while (first != files_.begin() && joins(*std::prev(first))) --first;
  while (last != files_.end() && joins(*last)) ++last;
  std::vector<std::uint32_t> numbers;
  for (auto it = first; it != last; ++it) numbers.push_back(it->first);
  return numbers;
}

}  // namespace nmc::store::disk
