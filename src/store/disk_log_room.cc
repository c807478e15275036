// Making room in the disk log: files whose content is mostly dead are rewritten without it; when all of it lives, the
// oldest file goes.
//
// A rewritten run of files takes the place of its last one by rename, then the others are removed, so at any instant a
// start finds each entry at least once and in log order. Tombstones are kept unless the run is the oldest file alone:
// only then can no older entry of their key be left, whatever instant the process dies at.
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "store/disk_log_impl.h"

namespace nmc::store {

using disk::Entry;
using disk::EntryKind;
using disk::FileContents;
using disk::FileEntry;
using disk::LogFile;
using disk::Slot;
using disk::SyncData;

// One rewriting of a run of files.
class DiskLog::Impl::Compaction {
 public:
  // The analysis can't see that compaction.log_ is `log`.
  static Result<void> of(Impl& log, std::vector<std::shared_ptr<LogFile>> files, bool keep_tombstones)
      NMC_REQUIRES(log.write_mutex) NMC_NO_THREAD_SAFETY {
    return Compaction(log, std::move(files), keep_tombstones).run();
  }

 private:
  Compaction(Impl& log, std::vector<std::shared_ptr<LogFile>> files, bool keep_tombstones)
      : log_(log), run_(std::move(files)), keep_tombstones_(keep_tombstones) {}

  Result<void> run() NMC_REQUIRES(log_.write_mutex) {
    if (auto hit = failpoint("disklog.compact")) return Failure(*std::move(hit));
    NMC_ASSIGN_OR_RETURN(auto output,
                         LogFile::create(log_.folder.temporary_path(), run_.back()->number(), log_.folder.salt()));
    output_ = std::move(output);
    auto done = copy_all();
    if (done && !output_->empty()) done = publish();
    if (!done || output_->empty()) (void)output_->remove();
    if (!done) return done;
    return retire();
  }

  Result<void> copy_all() NMC_REQUIRES(log_.write_mutex) {
    for (const auto& file : run_) {
      NMC_ASSIGN_OR_RETURN(const FileContents contents, file->contents());
      for (const auto& damage : contents.damages) log_.quarantine_range(*file, damage);
      const std::span<const FileEntry> entries(contents.entries);
      for (std::size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
        while (end < entries.size() && entries[end].sequence == entries[begin].sequence) ++end;
        NMC_RETURN_IF_ERROR(copy_record(*file, entries.subspan(begin, end - begin)));
      }
    }
    return {};
  }

  // The entries of one record (or of several with one sequence number): what lives, and tombstones.
  Result<void> copy_record(const LogFile& file, std::span<const FileEntry> entries) NMC_REQUIRES(log_.write_mutex) {
    std::vector<std::string_view> tombstones;
    std::vector<DiskItem> items;
    std::vector<Slot> from;
    std::vector<std::vector<std::byte>> payloads;
    for (const FileEntry& entry : entries) {
      if (entry.kind == EntryKind::kTombstone) {
        tombstones.push_back(entry.key);
        continue;
      }
      const auto slot = log_.find(entry.key);
      if (!slot || slot->file != file.number() || slot->offset != entry.offset) continue;
      std::vector<std::byte> payload(entry.bytes);
      auto read = log_.read_object(file, entry.view(), payload);
      if (!read) {
        if (read.error().code != ErrorCode::kCorrupt) return read;
        log_.quarantine_range(file, {entry.offset, entry.bytes, std::move(read).error().message});
        tombstones.push_back(entry.key);
        continue;
      }
      payloads.push_back(std::move(payload));
      items.push_back({entry.key, payloads.back()});
      from.push_back(*slot);
      log_.counters.compacted_bytes.fetch_add(entry.bytes, std::memory_order_relaxed);
    }
    return write(entries.front().sequence, tombstones, items, from);
  }

  Result<void> write(std::uint64_t sequence, std::span<const std::string_view> tombstones,
                     std::span<const DiskItem> items, std::span<const Slot> from) NMC_REQUIRES(log_.write_mutex) {
    if (keep_tombstones_ && !tombstones.empty()) {
      NMC_RETURN_IF_ERROR(output_->append_tombstones(sequence, tombstones, SyncData::kNo));
      tombstones_ += tombstones.size();
    }
    if (items.empty()) return {};
    NMC_ASSIGN_OR_RETURN(const auto written, output_->append(sequence, items, SyncData::kNo));
    for (std::size_t i = 0; i < written.size(); ++i) {
      const Entry& to = written[i];
      moves_.push_back({from[i], {std::string(to.key), to.kind, sequence, to.offset, to.bytes, to.checksum}});
    }
    return {};
  }

  // Seals the output and puts it in the place of the run's last file.
  Result<void> publish() NMC_REQUIRES(log_.write_mutex) {
    NMC_RETURN_IF_ERROR(output_->seal());
    if (log_.options.fsync != FsyncPolicy::kNever) NMC_RETURN_IF_ERROR(log_.sync_file_locked(*output_));
    NMC_RETURN_IF_ERROR(output_->rename(log_.folder.file_path(output_->number())));
    if (auto hit = failpoint("disklog.compact.renamed")) log_.count_error("compaction", *hit);
    return {};
  }

  Result<void> retire() NMC_REQUIRES(log_.write_mutex) {
    const bool replaced = !output_->empty();
    {
      MutexLock lock(log_.index_mutex);
      log_.index.replace_run(run_, replaced ? output_ : nullptr, moves_, tombstones_);
    }
    NMC_RETURN_IF_ERROR(log_.sync_folder());  // the new name first, then the old ones go
    for (const auto& file : run_) {
      if (!replaced || file != run_.back()) NMC_RETURN_IF_ERROR(file->remove());
    }
    return log_.sync_folder();
  }

  Impl& log_;
  std::vector<std::shared_ptr<LogFile>> run_;
  bool keep_tombstones_;
  std::shared_ptr<LogFile> output_;
  std::vector<disk::Move> moves_;
  std::uint64_t tombstones_ = 0;
};

std::uint64_t DiskLog::Impl::used_locked() {
  MutexLock lock(index_mutex);
  // The file being written is counted as if it were sealed.
  return index.file_bytes() - active->size() + (active->appendable() ? active->sealed_bytes() : active->size());
}

Result<void> DiskLog::Impl::make_room_locked(std::uint64_t bytes) {
  while (used_locked() + bytes > data_bytes_max) {
    if (compact_locked()) continue;
    NMC_RETURN_IF_ERROR(drop_oldest_locked());
  }
  return {};
}

bool DiskLog::Impl::compact_locked() {
  const std::uint64_t before = used_locked();
  std::vector<std::shared_ptr<LogFile>> files;
  bool oldest_alone = false, holds_active = false;
  {
    MutexLock lock(index_mutex);
    const auto best = index.best_to_compact(options.file_bytes);
    if (!best) return false;
    holds_active = *best == active->number();
    const auto numbers = index.run_around(*best, options.file_bytes, active->number());
    for (const std::uint32_t number : numbers) files.push_back(index.files().at(number).file);
    oldest_alone = numbers.size() == 1 && numbers.front() == index.files().begin()->first;
  }
  if (holds_active) {
    if (active->appendable()) seal_active_locked();
    auto started = start_file_locked();
    if (!started) {
      count_error("compaction", started.error());
      return false;
    }
  }
  auto done = Compaction::of(*this, std::move(files), !oldest_alone);
  if (!done) count_error("compaction", done.error());
  return used_locked() < before;
}

Result<void> DiskLog::Impl::drop_oldest_locked() {
  std::shared_ptr<LogFile> file;
  {
    MutexLock lock(index_mutex);
    file = index.files().begin()->second.file;
  }
  if (file == active) {
    if (active->empty()) {
      return resource_exhausted("disk log {}: no room left to make in {} bytes", options.folder.string(),
                                options.bytes_max);
    }
    if (active->appendable()) seal_active_locked();
    NMC_RETURN_IF_ERROR(start_file_locked());
  }
  const auto contents = file->contents();
  if (contents) carry_forward_locked(file, *contents, std::min(options.file_bytes / 4, file->size() / 2));
  {
    MutexLock lock(index_mutex);
    std::uint64_t dropped = 0;
    if (contents) {
      for (const FileEntry& entry : contents->entries) {
        const Slot* slot = index.find(entry.key);
        if (slot != nullptr && slot->file == file->number() && index.erase(entry.key)) ++dropped;
      }
    }
    dropped += index.remove_file(file->number());
    counters.dropped_objects.fetch_add(dropped, std::memory_order_relaxed);
  }
  NMC_RETURN_IF_ERROR(file->remove());
  return sync_folder();
}

void DiskLog::Impl::carry_forward_locked(const std::shared_ptr<LogFile>& file, const FileContents& contents,
                                         std::uint64_t bytes_max) {
  for (const FileEntry& entry : contents.entries) {
    const auto slot = find(entry.key);
    if (!slot || slot->file != file->number() || slot->offset != entry.offset || !slot->read_recently) continue;
    std::vector<std::byte> payload(std::min(entry.bytes, bytes_max));
    if (entry.kind != EntryKind::kObject || entry.bytes > bytes_max || !read_object(*file, entry.view(), payload))
      continue;
    const DiskItem item{entry.key, payload};
    const std::uint64_t bytes = LogFile::added_bytes({&item, 1});
    if (bytes > bytes_max) return;
    if (!ready_active_locked(bytes)) return;  // dropped then, as it would have been without a second chance
    const auto entries = active->append(next_sequence, {&item, 1}, sync_data());
    if (!entries) return;
    published_locked(*entries);
    bytes_max -= bytes;
  }
}

}  // namespace nmc::store
