// One membership of a client in a store of this host: its view of the shared files. Internal to the client.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
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

  // Lives from before a put's places are asked for until nothing is written to them any more, nor committed.
  class PutAtWork {
   public:
    explicit PutAtWork(Membership& membership) : membership_(membership), began_(membership.begin_put()) {}
    ~PutAtWork() { membership_.end_put(began_); }
    PutAtWork(const PutAtWork&) = delete;
    PutAtWork& operator=(const PutAtWork&) = delete;

   private:
    Membership& membership_;
    const std::uint64_t began_;
  };

  SharedStoreReader& reader() { return *reader_; }
  std::uint32_t client() const { return reader_->pins().client(); }

 private:
  struct Writable {
    std::uint64_t incarnation;
    Segment segment;
  };

  Membership(std::function<Result<UniqueFd>(std::uint32_t)> open_segment, TouchClock& clock)
      : open_segment_(std::move(open_segment)), clock_(clock) {}

  std::uint64_t begin_put() NMC_EXCLUDES(puts_mutex_);
  void end_put(std::uint64_t began) NMC_EXCLUDES(puts_mutex_);

  const std::function<Result<UniqueFd>(std::uint32_t)> open_segment_;
  TouchClock& clock_;
  std::unique_ptr<SharedStoreReader> reader_;
  Mutex puts_mutex_;
  std::multiset<std::uint64_t> puts_ NMC_GUARDED_BY(puts_mutex_);  // when those at work began
  Mutex mutex_;
  std::array<std::optional<Writable>, kSegmentsMax> segments_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::store
