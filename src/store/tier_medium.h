// What a tier below memory keeps its objects on: a log on disk, another store. LowerTier decides what is written and
// when; a medium only does it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/store.h"

namespace nmc::store {

// An object to be written.
struct TierItem {
  std::string_view key;
  std::span<const std::byte> payload;
};

// An object to be read into exactly so many bytes.
struct TierRead {
  std::string_view key;
  std::span<std::byte> out;
};

// Thread-safe.
class TierMedium {
 public:
  TierMedium() = default;
  virtual ~TierMedium() = default;
  TierMedium(const TierMedium&) = delete;
  TierMedium& operator=(const TierMedium&) = delete;

  virtual const char* name() const = 0;  // "disk", "remote": for messages, metrics and failpoints
  virtual Source source() const = 0;
  virtual bool takes(ObjectClass object_class) const = 0;

  // Size of what certainly is there, told without waiting. Nothing: it isn't there, or one would have to ask.
  virtual std::optional<std::uint64_t> known_size(std::string_view key) const = 0;
  virtual std::vector<std::string> known_keys() const = 0;
  // Whether something may be there that known_size() doesn't tell: others write to it, too.
  virtual bool is_shared() const = 0;

  // From here on calls may wait, for the disk or for a peer's deadline.
  virtual std::optional<std::uint64_t> size_of(std::string_view key) = 0;
  // How many of keys[0..] a read would find; a hint.
  virtual std::size_t probe_run(std::span<const std::string> keys, std::uint64_t bytes) = 0;
  // Reads and verifies, in order. How many succeeded before the first that didn't; `why` then says what went wrong, if
  // it was more than a miss. What the others' `out` holds is undefined.
  virtual std::size_t read(std::span<const TierRead> reads, std::string* why) = 0;
  // How many reads are best made at once.
  virtual std::size_t reads_at_once() const = 0;

  virtual Result<void> append(std::span<const TierItem> items) = 0;
  virtual std::uint64_t append_bytes_max() const = 0;  // of all items together
  virtual Result<void> remove(std::string_view key) = 0;

  // Fills in its part.
  virtual void fill_stats(StoreStats& stats) const = 0;
};

}  // namespace nmc::store
