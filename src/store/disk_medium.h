// The disk log as a tier's medium.
#pragma once

#include <atomic>
#include <memory>

#include "store/disk_log.h"
#include "store/tier_medium.h"

namespace nmc::store {

// Thread-safe.
class DiskMedium final : public TierMedium {
 public:
  static Result<std::unique_ptr<DiskMedium>> open(DiskLogOptions options);

  const char* name() const override { return "disk"; }
  Source source() const override { return Source::kDisk; }
  bool takes(ObjectClass) const override { return true; }
  std::optional<std::uint64_t> known_size(std::string_view key) const override { return log_->size_of(key); }
  std::vector<std::string> known_keys() const override { return log_->keys(); }
  bool is_shared() const override { return false; }
  std::optional<std::uint64_t> size_of(std::string_view key) override { return log_->size_of(key); }
  std::size_t probe_run(std::span<const std::string> keys, std::uint64_t bytes) override;
  std::size_t read(std::span<const TierRead> reads, std::string* why) override;
  std::size_t reads_at_once() const override { return 1; }
  Result<void> append(std::span<const TierItem> items) override;
  std::uint64_t append_bytes_max() const override { return log_->record_bytes_max() / 2; }
  Result<void> remove(std::string_view key) override;
  void fill_stats(StoreStats& stats) const override;

 private:
  explicit DiskMedium(std::unique_ptr<DiskLog> log) : log_(std::move(log)) {}

  const std::unique_ptr<DiskLog> log_;
  std::atomic<std::uint64_t> injected_errors_{0};
};

}  // namespace nmc::store
