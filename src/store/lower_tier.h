// A tier below a store's memory: a queue that writes behind what is committed, and the guard that keeps a restore and a
// removal of one key from crossing. Where the bytes go is the medium's matter (tier_medium.h).
//
//   - A commit never waits: its object is pinned and queued. When the queue is full, or the memory of a queued object
//     is needed, the oldest queued writes are dropped and counted.
//   - One thread writes, in order of commit; objects that queue together are written together.
//   - A removed key is gone for readers at once, and on the medium when wait_removed returns. Until then it counts as
//     not there, and a restore of it that is under way fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "store/master_core.h"
#include "store/shared_reader.h"
#include "store/tier_medium.h"

namespace nmc::store {

// Thread-safe. The master outlives it; set_observer(this) is the owner's to call.
class LowerTier final : public MasterObserver {
 public:
  // `queue_bytes_max`: of objects that wait to be written.
  static Result<std::unique_ptr<LowerTier>> create(std::unique_ptr<TierMedium> medium, MasterCore& master,
                                                   TouchClock& clock, std::uint64_t queue_bytes_max);
  ~LowerTier() override;  // writes what is queued

  // MasterObserver
  void on_commit(std::uint32_t entry, std::uint64_t generation, ObjectClass object_class,
                 std::string_view key) override;
  bool on_remove(std::string_view key) override;
  bool relieve() override;

  const char* name() const { return medium_->name(); }
  Source source() const { return medium_->source(); }
  bool takes(ObjectClass object_class) const { return medium_->takes(object_class); }
  bool is_shared() const { return medium_->is_shared(); }
  // Size of the object that a restore would find. `ask`: also where that takes a while.
  std::optional<std::uint64_t> size_of(std::string_view key, bool ask = true) const NMC_EXCLUDES(mutex_);
  std::vector<std::string> known_keys() const NMC_EXCLUDES(mutex_);
  // How many of keys[0..] a restore would find; a hint.
  std::size_t probe_run(std::span<const std::string> keys, std::uint64_t bytes) const NMC_EXCLUDES(mutex_);
  // See TierMedium.
  std::size_t read(std::span<const TierRead> reads, std::string* why) { return medium_->read(reads, why); }
  std::size_t reads_at_once() const { return medium_->reads_at_once(); }
  void count_hit() { hits_.fetch_add(1, std::memory_order_relaxed); }
  // Returns when no removal of `key` waits to be written.
  void wait_removed(std::string_view key) NMC_EXCLUDES(mutex_);

  // Says, from its construction to its end, that `key` is being restored. cancelled() turns true when the key is
  // removed, or another object takes it, meanwhile.
  class Restoring {
   public:
    Restoring(LowerTier& tier, std::string_view key);
    ~Restoring();
    Restoring(const Restoring&) = delete;
    Restoring& operator=(const Restoring&) = delete;
    const std::atomic<bool>& cancelled() const { return cancelled_; }

   private:
    friend class LowerTier;
    LowerTier& tier_;
    const std::string_view key_;
    std::atomic<bool> cancelled_{false};
  };

  // Waits until all that was queued before the call is written. An error when something wasn't, since the last flush:
  // a write may have failed before anybody asked, and each is reported once.
  Result<void> flush() NMC_EXCLUDES(mutex_);
  // Fills in this tier's part.
  void fill_stats(StoreStats& stats) const NMC_EXCLUDES(mutex_);

 private:
  struct Job {
    std::uint64_t ticket = 0;
    std::string key;
    Pin pin;  // empty: a tombstone
    bool is_removal() const { return !pin; }
  };

  LowerTier(std::unique_ptr<TierMedium> medium, std::unique_ptr<SharedStoreReader> reader, MasterCore& master,
            std::uint64_t queue_bytes_max);

  void cancel_restores_locked(std::string_view key) NMC_REQUIRES(mutex_);
  bool drop_oldest_write_locked() NMC_REQUIRES(mutex_);
  void queue_removal_locked(std::string key) NMC_REQUIRES(mutex_);
  bool done_before_locked(std::uint64_t ticket) const NMC_REQUIRES(mutex_);
  void write_queue() NMC_EXCLUDES(mutex_);
  std::vector<Job> next_batch_locked() NMC_REQUIRES(mutex_);
  void write_batch(std::vector<Job>& batch) NMC_EXCLUDES(mutex_);
  void write_removal(const std::string& key);
  void count_failed(const Error& error, std::size_t objects) NMC_EXCLUDES(mutex_);

  const std::uint32_t client_;
  const std::unique_ptr<TierMedium> medium_;
  std::unique_ptr<SharedStoreReader> reader_;  // the queue's pins: a client that lends
  MasterCore& master_;
  const std::uint64_t queue_bytes_max_;
  std::atomic<std::uint64_t> hits_{0};

  mutable Mutex mutex_;                           // taken after the master's; never held during I/O
  CondVar work_;                                  // there is a job, or the end has come
  CondVar progress_;                              // jobs are done, or pins of a batch are given up
  std::deque<Job> queue_ NMC_GUARDED_BY(mutex_);  // removals first
  std::uint64_t queue_bytes_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ticket_ NMC_GUARDED_BY(mutex_) = 1;
  std::set<std::string, std::less<>> removing_ NMC_GUARDED_BY(mutex_);
  std::vector<std::string> in_flight_keys_ NMC_GUARDED_BY(mutex_);
  std::uint64_t in_flight_ticket_ NMC_GUARDED_BY(mutex_) = 0;  // the lowest; 0: nothing in flight
  bool batch_pinned_ NMC_GUARDED_BY(mutex_) = false;
  std::vector<Restoring*> restoring_ NMC_GUARDED_BY(mutex_);
  std::uint64_t dropped_ NMC_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ NMC_GUARDED_BY(mutex_) = 0;
  bool failing_ NMC_GUARDED_BY(mutex_) = false;                // as of the last write: what repeats isn't logged again
  std::uint64_t reported_dropped_ NMC_GUARDED_BY(mutex_) = 0;  // by the last flush
  std::uint64_t reported_failed_ NMC_GUARDED_BY(mutex_) = 0;
  bool stop_ NMC_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace nmc::store
