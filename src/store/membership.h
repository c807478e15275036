// One membership of a client in a store of this host: its view of the shared files. Internal to the client.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "base/result.h"
#include "store/protocol.h"
#include "store/segment.h"
#include "store/shared_reader.h"

namespace nmc::store {

// Reads through a pin table of its own; and the writable side of segments, which stays in here. Thread-safe.
class Membership {
 public:
  static Result<std::unique_ptr<Membership>> create(ClientFiles files, TouchClock& clock);

  // Where a reservation's bytes go. kCorrupt: the place isn't in its segment.
  Result<std::span<std::byte>> writable(const PlaceOnWire& place, std::uint64_t bytes) NMC_EXCLUDES(mutex_);

  SharedStoreReader& reader() { return *reader_; }
  std::uint32_t client() const { return reader_->pins().client(); }

 private:
  struct Writable {
    std::uint64_t incarnation;
    Segment segment;
  };

  explicit Membership(std::function<Result<UniqueFd>(std::uint32_t)> open_segment)
      : open_segment_(std::move(open_segment)) {}

  const std::function<Result<UniqueFd>(std::uint32_t)> open_segment_;
  std::unique_ptr<SharedStoreReader> reader_;
  Mutex mutex_;
  std::array<std::optional<Writable>, kSegmentsMax> segments_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::store
