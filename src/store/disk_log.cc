#include "store/disk_log.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "store/disk_log_impl.h"
#include "store/store.h"

namespace nmc::store {

using disk::Damage;
using disk::Entry;
using disk::EntryKind;
using disk::FileContents;
using disk::LogFile;
using disk::LogFolder;
using disk::Slot;
using disk::SyncData;

namespace {

constexpr std::uint64_t kOddsAndEnds = 8 << 10;  // FORMAT, LOCK, heads of fresh files

Result<DiskLogOptions> clamped(DiskLogOptions options) {
  if (options.folder.empty()) return invalid_argument("disk log: expected a folder");
  if (options.bytes_max < kDiskBytesMin) {
    return invalid_argument("disk log: bytes_max is {}, expected at least {}", options.bytes_max, kDiskBytesMin);
  }
  if (options.fsync == FsyncPolicy::kInterval && options.fsync_interval <= Nanos(0)) {
    return invalid_argument("disk log: fsync_interval is {} ns, expected more than 0", options.fsync_interval.count());
  }
  NMC_REQUIRE(options.clock != nullptr);
  options.file_bytes = std::clamp<std::uint64_t>(options.file_bytes, 4096, options.bytes_max / 8);
  options.quarantine_bytes_max = std::min(options.quarantine_bytes_max, options.bytes_max / 16);
  return options;
}

Result<void> check_items(std::span<const DiskItem> items, std::uint64_t bytes_max) {
  if (items.empty()) return invalid_argument("disk log append: expected at least one item");
  std::uint64_t table = 0;
  for (const DiskItem& item : items) {
    if (item.key.empty() || item.key.size() > kKeyBytesMax) {
      return invalid_argument("disk log append: key of {} bytes, expected 1 to {}", item.key.size(), kKeyBytesMax);
    }
    table += disk::entry_bytes(item.key.size());
  }
  const std::uint64_t bytes = LogFile::added_bytes(items);
  if (bytes > bytes_max || table > std::numeric_limits<std::uint32_t>::max()) {
    return invalid_argument("disk log append: record of {} bytes, expected at most {}", bytes, bytes_max);
  }
  return {};
}

}  // namespace

DiskLog::Impl::Impl(DiskLogOptions clamped_options, LogFolder locked_folder)
    : options(std::move(clamped_options)),
      data_bytes_max(options.bytes_max - options.file_bytes - options.quarantine_bytes_max - kOddsAndEnds),
      folder(std::move(locked_folder)),
      quarantine(folder.quarantine_path(), options.quarantine_bytes_max) {}

DiskLog::Impl::~Impl() {
  {
    MutexLock lock(write_mutex);
    closing = true;
    interval_wakeup.notify_one();
  }
  if (interval_thread.joinable()) interval_thread.join();
  MutexLock lock(write_mutex);
  if (active != nullptr && active->appendable() && !active->empty()) seal_active_locked();
}

// ---- opening

Result<void> DiskLog::Impl::load() {
  MutexLock lock(write_mutex);
  NMC_ASSIGN_OR_RETURN(const auto numbers, folder.list());
  for (const std::uint32_t number : numbers) {
    auto loaded = load_file(number, number == numbers.back());
    if (!loaded) return Failure(std::move(loaded).error().with_context(folder.file_path(number).string()));
  }
  if (active == nullptr) NMC_RETURN_IF_ERROR(start_file_locked());
  flush_mark.store(next_sequence - 1, std::memory_order_release);
  NMC_RETURN_IF_ERROR(make_room_locked(0));  // the cap may be lower than last time
  if (options.fsync == FsyncPolicy::kInterval) interval_thread = std::thread([this] { sync_at_intervals(); });
  return {};
}

Result<void> DiskLog::Impl::load_file(std::uint32_t number, bool last) {
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> opened, LogFile::open(folder.file_path(number), number, folder.salt()));
  const std::shared_ptr<LogFile> file = std::move(opened);
  if (file->size() > options.bytes_max) {
    quarantine_range(
        *file, {0, file->size(), fmt::format("file is larger than the log may be ({} bytes)", options.bytes_max)});
    return file->remove();
  }
  NMC_ASSIGN_OR_RETURN(const FileContents contents, file->contents());
  counters.replayed_records.fetch_add(contents.records, std::memory_order_relaxed);
  next_sequence = std::max(next_sequence, contents.last_sequence + 1);
  for (const Damage& damage : contents.damages) quarantine_range(*file, damage);

  const bool goes_on = last && contents.damages.empty() && contents.data_end < options.file_bytes;
  if (!goes_on && contents.entries.empty()) return file->remove();
  {
    MutexLock lock(index_mutex);
    index.add_file(file);
    for (const auto& entry : contents.entries) index.apply(number, entry.view());
  }
  if (goes_on) {
    active = file;
    return file->reopen(contents);
  }
  if (contents.sealed && contents.damages.empty()) return {};
  return mend_locked(*file, contents);
}

// Seals what a crash left open, or leaves behind the damage just quarantined, so that the next start won't find it
// again.
Result<void> DiskLog::Impl::mend_locked(LogFile& file, const FileContents& contents) {
  auto mended = file.reopen(contents);
  if (mended) mended = file.seal();
  if (mended && options.fsync != FsyncPolicy::kNever) mended = sync_file_locked(file);
  if (!mended) count_error("mending a file", mended.error());  // it reads as well as before
  return {};
}

// ---- writing

SyncData DiskLog::Impl::sync_data() const {
  return options.fsync == FsyncPolicy::kEachAppend ? SyncData::kYes : SyncData::kNo;
}

Result<std::uint64_t> DiskLog::Impl::append(std::span<const DiskItem> items) {
  NMC_RETURN_IF_ERROR(check_items(items, data_bytes_max / 2));
  MutexLock lock(write_mutex);
  auto hit = failpoint("disklog.append");
  auto done = hit ? Result<std::uint64_t>(Failure(*std::move(hit))) : append_locked(items);
  if (!done) count_error("append", done.error());
  return done;
}

Result<std::uint64_t> DiskLog::Impl::append_locked(std::span<const DiskItem> items) {
  const std::uint64_t bytes = LogFile::added_bytes(items);
  NMC_RETURN_IF_ERROR(make_room_locked(bytes));
  NMC_RETURN_IF_ERROR(ready_active_locked(bytes));
  NMC_ASSIGN_OR_RETURN(const auto entries, active->append(next_sequence, items, sync_data()));
  for (const DiskItem& item : items) {
    counters.appended_bytes.fetch_add(item.payload.size(), std::memory_order_relaxed);
  }
  return published_locked(entries);
}

Result<void> DiskLog::Impl::append_tombstone_locked(std::string_view key) {
  const DiskItem shape{key, {}};
  const std::uint64_t bytes = LogFile::added_bytes({&shape, 1});
  NMC_RETURN_IF_ERROR(make_room_locked(bytes));
  NMC_RETURN_IF_ERROR(ready_active_locked(bytes));
  NMC_ASSIGN_OR_RETURN(const auto entries, active->append_tombstones(next_sequence, {&key, 1}, sync_data()));
  published_locked(entries);
  return {};
}

std::uint64_t DiskLog::Impl::published_locked(const std::vector<Entry>& entries) {
  {
    MutexLock lock(index_mutex);
    for (const Entry& entry : entries) index.apply(active->number(), entry);
  }
  if (options.fsync == FsyncPolicy::kEachAppend) counters.syncs.fetch_add(1, std::memory_order_relaxed);
  if (options.fsync == FsyncPolicy::kInterval && !unsynced_since) {
    unsynced_since = options.clock->now();
    interval_wakeup.notify_one();
  }
  const std::uint64_t sequence = next_sequence++;
  flush_mark.store(sequence, std::memory_order_release);
  return sequence;
}

Result<bool> DiskLog::Impl::remove(std::string_view key) {
  MutexLock lock(write_mutex);
  if (!find(key)) return false;
  auto done = append_tombstone_locked(key);
  if (done) return true;
  count_error("remove", done.error());
  MutexLock index_lock(index_mutex);
  index.erase(key);
  return Failure(std::move(done).error());
}

Result<void> DiskLog::Impl::ready_active_locked(std::uint64_t bytes) {
  if (active->appendable()) {
    if (active->empty() || active->sealed_bytes() + bytes <= options.file_bytes) return {};
    seal_active_locked();
  }
  return start_file_locked();
}

void DiskLog::Impl::seal_active_locked() {
  auto sealed = active->seal();
  if (sealed && options.fsync != FsyncPolicy::kNever) sealed = sync_file_locked(*active);
  if (!sealed) count_error("sealing a file", sealed.error());
  unsynced_since.reset();
}

Result<void> DiskLog::Impl::start_file_locked() {
  std::uint32_t number = 1;
  {
    MutexLock lock(index_mutex);
    if (!index.files().empty()) number = index.files().rbegin()->first + 1;
  }
  if (number == 0) return resource_exhausted("disk log: file numbers have run out");
  NMC_ASSIGN_OR_RETURN(active, LogFile::create(folder.file_path(number), number, folder.salt()));
  {
    MutexLock lock(index_mutex);
    index.add_file(active);
  }
  return sync_folder();
}

Result<void> DiskLog::Impl::sync_file_locked(LogFile& file) {
  counters.syncs.fetch_add(1, std::memory_order_relaxed);
  return file.sync();
}

Result<void> DiskLog::Impl::sync_folder() {
  if (options.fsync == FsyncPolicy::kNever) return {};
  return folder.sync();
}

Result<void> DiskLog::Impl::sync() {
  MutexLock lock(write_mutex);
  std::vector<std::shared_ptr<LogFile>> files;
  {
    MutexLock index_lock(index_mutex);
    for (const auto& [number, use] : index.files()) files.push_back(use.file);
  }
  for (const auto& file : files) NMC_RETURN_IF_ERROR(sync_file_locked(*file));
  unsynced_since.reset();
  return folder.sync();
}

void DiskLog::Impl::sync_at_intervals() {
  MutexLock lock(write_mutex);
  while (!closing) {
    if (!unsynced_since) {
      interval_wakeup.wait(write_mutex);
      continue;
    }
    const Nanos left = *unsynced_since + options.fsync_interval - options.clock->now();
    if (left > Nanos(0)) {
      interval_wakeup.wait_until(write_mutex, std::chrono::steady_clock::now() + left);
      continue;
    }
    unsynced_since.reset();
    auto synced = sync_file_locked(*active);
    if (!synced) count_error("fsync", synced.error());
  }
}

// ---- reading

std::optional<Slot> DiskLog::Impl::find(std::string_view key) const {
  MutexLock lock(index_mutex);
  const Slot* slot = index.find(key);
  return slot == nullptr ? std::nullopt : std::optional(*slot);
}

bool DiskLog::Impl::read(std::string_view key, std::span<std::byte> out) {
  if (auto hit = failpoint("disklog.read")) {
    count_error("read", *hit);
    return false;
  }
  Slot slot;
  std::shared_ptr<LogFile> file;
  {
    MutexLock lock(index_mutex);
    const Slot* found = index.find(key);
    if (found == nullptr || found->bytes != out.size()) return false;
    slot = *found;
    file = index.files().at(slot.file).file;
    if (!slot.read_recently) index.note_read(key);
  }
  auto done = read_object(*file, {key, EntryKind::kObject, slot.sequence, slot.offset, slot.bytes, slot.checksum}, out);
  if (done) {
    counters.read_bytes.fetch_add(out.size(), std::memory_order_relaxed);
    return true;
  }
  if (done.error().code == ErrorCode::kCorrupt)
    quarantine_object(key, slot, file, std::move(done).error().message);
  else
    count_error("read", done.error());
  return false;
}

Result<void> DiskLog::Impl::read_object(const LogFile& file, const Entry& entry, std::span<std::byte> out) {
  NMC_RETURN_IF_ERROR(file.read(entry.offset, out));
  if (!out.empty() && failpoint("disklog.damage")) out[0] ^= std::byte{1};  // as if the disk had changed it
  return disk::check_payload(entry, checksum64(out));
}

// ---- damage

void DiskLog::Impl::quarantine_range(const LogFile& file, const Damage& damage) {
  MutexLock lock(quarantine_mutex);
  quarantine.add(file, file.name(), damage);
}

void DiskLog::Impl::quarantine_object(std::string_view key, const Slot& slot, const std::shared_ptr<LogFile>& file,
                                      std::string reason) {
  MutexLock lock(write_mutex);
  {
    MutexLock index_lock(index_mutex);
    const Slot* found = index.find(key);
    // Another reader was here first, or compaction, which checks what it moves.
    if (found == nullptr || !found->same_place(slot) || index.files().at(slot.file).file != file) return;
    index.erase(key);
  }
  quarantine_range(*file, {slot.offset, slot.bytes, std::move(reason)});
  auto buried = append_tombstone_locked(key);
  if (!buried) count_error("marking a damaged object", buried.error());  // the next start finds the damage again
}

void DiskLog::Impl::count_error(std::string_view what, const Error& error) {
  counters.errors.fetch_add(1, std::memory_order_relaxed);
  log_warning("disk log {}: {}: {}", options.folder.string(), what, error.message);
}

// ---- the interface

Result<std::unique_ptr<DiskLog>> DiskLog::open(DiskLogOptions options) {
  NMC_ASSIGN_OR_RETURN(options, clamped(std::move(options)));
  NMC_ASSIGN_OR_RETURN(LogFolder folder, LogFolder::open(options.folder));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(folder));
  NMC_RETURN_IF_ERROR(impl->load());
  return std::unique_ptr<DiskLog>(new DiskLog(std::move(impl)));
}

DiskLog::DiskLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DiskLog::~DiskLog() = default;

Result<std::uint64_t> DiskLog::append(std::span<const DiskItem> items) { return impl_->append(items); }
Result<bool> DiskLog::remove(std::string_view key) { return impl_->remove(key); }
std::uint64_t DiskLog::record_bytes_max() const { return impl_->data_bytes_max / 2; }
bool DiskLog::contains(std::string_view key) const { return impl_->find(key).has_value(); }

std::optional<std::uint64_t> DiskLog::size_of(std::string_view key) const {
  const auto slot = impl_->find(key);
  return slot ? std::optional(slot->bytes) : std::nullopt;
}

std::vector<std::string> DiskLog::keys() const {
  MutexLock lock(impl_->index_mutex);
  return impl_->index.keys();
}

bool DiskLog::read(std::string_view key, std::span<std::byte> out) { return impl_->read(key, out); }
std::uint64_t DiskLog::flush_mark() const { return impl_->flush_mark.load(std::memory_order_acquire); }
Result<void> DiskLog::sync() { return impl_->sync(); }

DiskLogStats DiskLog::stats() const {
  DiskLogStats stats;
  {
    MutexLock lock(impl_->index_mutex);
    stats.objects = impl_->index.objects();
    stats.live_bytes = impl_->index.live_bytes();
    stats.used_bytes = impl_->index.file_bytes();
    stats.files = impl_->index.files().size();
  }
  {
    MutexLock lock(impl_->quarantine_mutex);
    stats.used_bytes += impl_->quarantine.used_bytes();
    stats.quarantined_entries = impl_->quarantine.entries();
    stats.quarantined_bytes = impl_->quarantine.damaged_bytes();
    stats.quarantine_reasons = impl_->quarantine.reasons();
  }
  const auto& counters = impl_->counters;
  stats.bytes_max = impl_->options.bytes_max;
  stats.appended_bytes = counters.appended_bytes.load(std::memory_order_relaxed);
  stats.read_bytes = counters.read_bytes.load(std::memory_order_relaxed);
  stats.compacted_bytes = counters.compacted_bytes.load(std::memory_order_relaxed);
  stats.dropped_objects = counters.dropped_objects.load(std::memory_order_relaxed);
  stats.errors = counters.errors.load(std::memory_order_relaxed);
  stats.replayed_records = counters.replayed_records.load(std::memory_order_relaxed);
  stats.syncs = counters.syncs.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace nmc::store
