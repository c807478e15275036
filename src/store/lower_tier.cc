#include "store/lower_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"

namespace nmc::store {
namespace {

// Bounds of one record: what a damaged one can take along, and the memory that a batch is gathered in.
constexpr std::size_t kBatchJobsMax = 32;
constexpr std::uint64_t kBatchBytesMax = std::uint64_t{4} << 20;

}  // namespace

Result<std::unique_ptr<LowerTier>> LowerTier::create(std::unique_ptr<TierMedium> medium, MasterCore& master,
                                                     TouchClock& clock, std::uint64_t queue_bytes_max) {
  NMC_ASSIGN_OR_RETURN(const PinTable* table, master.add_client(Clients::Kind::kLender));
  NMC_ASSIGN_OR_RETURN(ClientFiles files, master.files_for(*table));
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<SharedStoreReader> reader, SharedStoreReader::open(std::move(files), clock));
  return std::unique_ptr<LowerTier>(new LowerTier(std::move(medium), std::move(reader), master, queue_bytes_max));
}

LowerTier::LowerTier(std::unique_ptr<TierMedium> medium, std::unique_ptr<SharedStoreReader> reader, MasterCore& master,
                     std::uint64_t queue_bytes_max)
    : client_(reader->pins().client()),
      medium_(std::move(medium)),
      reader_(std::move(reader)),
      master_(master),
      queue_bytes_max_(queue_bytes_max) {
  writer_ = std::thread([this] { write_queue(); });
}

LowerTier::~LowerTier() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    work_.notify_all();
  }
  writer_.join();
  reader_.reset();
  master_.drop_client(client_);
}

// ---- what the master tells ----

void LowerTier::on_commit(std::uint32_t entry, std::uint64_t generation, ObjectClass object_class,
                          std::string_view key) {
  if (!medium_->takes(object_class)) return;
  MutexLock lock(mutex_);
  const std::uint64_t bytes = unpack_extent(master_.entry(entry).extent.load(std::memory_order_relaxed)).bytes;
  // Blocks and tails are named by their content: what the medium has under the name is this. Another object may differ
  // from it.
  const bool named_by_content = object_class != ObjectClass::kObject;
  if (!named_by_content) cancel_restores_locked(key);
  if (named_by_content && removing_.find(key) == removing_.end() && medium_->known_size(key) == bytes) return;
  if (bytes > queue_bytes_max_) {
    ++dropped_;
    return;
  }
  while (queue_bytes_ + bytes > queue_bytes_max_) drop_oldest_write_locked();
  const std::uint64_t committed = make_commit_word(generation, EntryState::kCommitted);
  if (!Pins::pin(master_.entry(entry).commit, committed, reader_->pins().word(entry), 0)) return;
  queue_.push_back({next_ticket_++, std::string(key), reader_->adopt(entry, generation)});
  queue_bytes_ += bytes;
  work_.notify_one();
}

bool LowerTier::on_remove(std::string_view key) {
  MutexLock lock(mutex_);
  cancel_restores_locked(key);
  for (auto job = queue_.begin(); job != queue_.end();) {
    if (job->is_removal() || job->key != key) {
      ++job;
      continue;
    }
    queue_bytes_ -= job->pin.bytes().size();
    job = queue_.erase(job);
  }
  progress_.notify_all();
  if (removing_.find(key) != removing_.end()) return false;  // somebody else's removal
  const bool in_flight = std::find(in_flight_keys_.begin(), in_flight_keys_.end(), key) != in_flight_keys_.end();
  const bool known = in_flight || medium_->known_size(key).has_value();
  if (known || medium_->is_shared()) queue_removal_locked(std::string(key));
  return known;
}

void LowerTier::cancel_restores_locked(std::string_view key) {
  for (Restoring* restoring : restoring_) {
    if (restoring->key_ == key) restoring->cancelled_.store(true, std::memory_order_relaxed);
  }
}

// Ahead of all writes: those of the same key that came before are cancelled or in flight, those that come after it
// follow.
void LowerTier::queue_removal_locked(std::string key) {
  removing_.insert(key);
  queue_.push_front({0, std::move(key), Pin()});
  work_.notify_one();
}

bool LowerTier::relieve() {
  MutexLock lock(mutex_);
  if (drop_oldest_write_locked()) return true;
  if (!batch_pinned_) return false;
  while (batch_pinned_) progress_.wait(mutex_);  // for the length of a copy in memory
  return true;
}

bool LowerTier::drop_oldest_write_locked() {
  const auto oldest = std::find_if(queue_.begin(), queue_.end(), [](const Job& job) { return !job.is_removal(); });
  if (oldest == queue_.end()) return false;
  ++dropped_;
  queue_bytes_ -= oldest->pin.bytes().size();
  std::string key = std::move(oldest->key);
  queue_.erase(oldest);
  progress_.notify_all();
  // An older object of this name would otherwise come back from the medium once this one leaves memory.
  if (removing_.find(key) == removing_.end() && medium_->known_size(key)) queue_removal_locked(std::move(key));
  return true;
}

// ---- the writer ----

void LowerTier::write_queue() {
  for (;;) {
    std::vector<Job> batch;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) work_.wait(mutex_);
      if (queue_.empty()) return;
      batch = next_batch_locked();
    }
    if (batch.front().is_removal())
      write_removal(batch.front().key);
    else
      write_batch(batch);
    MutexLock lock(mutex_);
    if (batch.front().is_removal()) removing_.erase(batch.front().key);
    in_flight_keys_.clear();
    in_flight_ticket_ = 0;
    progress_.notify_all();
  }
}

std::vector<LowerTier::Job> LowerTier::next_batch_locked() {
  std::vector<Job> batch;
  std::uint64_t bytes = 0;
  const std::uint64_t most = std::min(kBatchBytesMax, medium_->append_bytes_max());
  while (!queue_.empty() && batch.size() < kBatchJobsMax) {
    Job& job = queue_.front();
    const std::uint64_t size = job.pin.bytes().size();
    if (!batch.empty() && (job.is_removal() || batch.front().is_removal() || bytes + size > most)) break;
    bytes += size;
    batch.push_back(std::move(job));
    queue_.pop_front();
  }
  queue_bytes_ -= bytes;
  if (batch.front().is_removal()) return batch;
  for (const Job& job : batch) in_flight_keys_.push_back(job.key);
  in_flight_ticket_ = batch.front().ticket;
  batch_pinned_ = true;
  return batch;
}

// Gathers the bytes first and gives up the pins, so that memory is held for a copy and not for the disk's time.
void LowerTier::write_batch(std::vector<Job>& batch) {
  std::size_t bytes = 0;
  for (const Job& job : batch) bytes += job.pin.bytes().size();
  std::vector<std::byte> gathered(bytes);
  std::vector<TierItem> items;
  std::size_t at = 0;
  for (Job& job : batch) {
    const std::span<std::byte> to = std::span(gathered).subspan(at, job.pin.bytes().size());
    std::memcpy(to.data(), job.pin.bytes().data(), to.size());
    at += to.size();
    items.push_back({job.key, to});
    job.pin = Pin();
  }
  {
    MutexLock lock(mutex_);
    batch_pinned_ = false;
    progress_.notify_all();
  }
  const auto appended = medium_->append(items);
  if (!appended) return count_failed(appended.error(), batch.size());
  MutexLock lock(mutex_);
  failing_ = false;
}

void LowerTier::write_removal(const std::string& key) {
  if (const auto removed = medium_->remove(key); !removed) count_failed(removed.error(), 1);
}

void LowerTier::count_failed(const Error& error, std::size_t objects) {
  MutexLock lock(mutex_);
  failed_ += objects;
  if (!std::exchange(failing_, true))
    log_warning("{} tier: {} objects not written: {}", medium_->name(), objects, error.message);
}

// ---- reading, removing, flushing ----

std::optional<std::uint64_t> LowerTier::size_of(std::string_view key, bool ask) const {
  {
    MutexLock lock(mutex_);
    if (removing_.find(key) != removing_.end()) return std::nullopt;
  }
  return ask ? medium_->size_of(key) : medium_->known_size(key);
}

std::vector<std::string> LowerTier::known_keys() const {
  std::vector<std::string> keys = medium_->known_keys();
  MutexLock lock(mutex_);
  std::erase_if(keys,
                [this](const std::string& key) NMC_NO_THREAD_SAFETY { return removing_.find(key) != removing_.end(); });
  return keys;
}

std::size_t LowerTier::probe_run(std::span<const std::string> keys, std::uint64_t bytes) const {
  {
    MutexLock lock(mutex_);
    const auto removed = std::find_if(keys.begin(), keys.end(), [this](const std::string& key) NMC_NO_THREAD_SAFETY {
      return removing_.find(key) != removing_.end();
    });
    keys = keys.first(static_cast<std::size_t>(removed - keys.begin()));
  }
  return medium_->probe_run(keys, bytes);
}

void LowerTier::wait_removed(std::string_view key) {
  MutexLock lock(mutex_);
  while (removing_.find(key) != removing_.end()) progress_.wait(mutex_);
}

LowerTier::Restoring::Restoring(LowerTier& tier, std::string_view key) : tier_(tier), key_(key) {
  MutexLock lock(tier_.mutex_);
  tier_.restoring_.push_back(this);
}

LowerTier::Restoring::~Restoring() {
  MutexLock lock(tier_.mutex_);
  std::erase(tier_.restoring_, this);
}

bool LowerTier::done_before_locked(std::uint64_t ticket) const {
  if (in_flight_ticket_ != 0 && in_flight_ticket_ < ticket) return false;
  return std::none_of(queue_.begin(), queue_.end(), [&](const Job& job) { return job.ticket < ticket; });
}

Result<void> LowerTier::flush() {
  MutexLock lock(mutex_);
  const std::uint64_t ticket = next_ticket_;
  while (!done_before_locked(ticket)) progress_.wait(mutex_);
  const std::uint64_t dropped = std::exchange(reported_dropped_, dropped_);
  const std::uint64_t failed = std::exchange(reported_failed_, failed_);
  if (dropped_ == dropped && failed_ == failed) return {};
  return failure(ErrorCode::kIo, "{} tier: since the last flush {} writes failed and {} were dropped", medium_->name(),
                 failed_ - failed, dropped_ - dropped);
}

void LowerTier::fill_stats(StoreStats& stats) const {
  medium_->fill_stats(stats);
  const bool disk = medium_->source() == Source::kDisk;
  (disk ? stats.disk_hits : stats.remote_hits) = hits_.load(std::memory_order_relaxed);
  MutexLock lock(mutex_);
  (disk ? stats.disk_write_dropped : stats.remote_write_dropped) = dropped_;
}

}  // namespace nmc::store
