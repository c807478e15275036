#include "store/membership.h"

namespace nmc::store {

Result<std::unique_ptr<Membership>> Membership::create(ClientFiles files, TouchClock& clock) {
  std::unique_ptr<Membership> membership(new Membership(files.open_segment, clock));
  NMC_ASSIGN_OR_RETURN(membership->reader_, SharedStoreReader::open(std::move(files), clock));
  return membership;
}

std::uint64_t Membership::begin_put() {
  MutexLock lock(puts_mutex_);
  const std::uint64_t began = clock_.ticks();
  puts_.insert(began);
  reader_->pins().header().oldest_put.store(*puts_.begin(), std::memory_order_seq_cst);
  return began;
}

void Membership::end_put(std::uint64_t began) {
  MutexLock lock(puts_mutex_);
  puts_.erase(puts_.find(began));
  reader_->pins().header().oldest_put.store(puts_.empty() ? 0 : *puts_.begin(), std::memory_order_seq_cst);
}

Result<std::span<std::byte>> Membership::writable(const PlaceOnWire& place, std::uint64_t bytes) {
  if (place.segment >= kSegmentsMax) return corrupt("store: a place in segment {}", place.segment);
  const std::uint64_t incarnation = incarnation_of(reader_->index().segment_word(place.segment));
  MutexLock lock(mutex_);
  auto& segment = segments_[place.segment];
  if (!segment || segment->incarnation != incarnation) {
    NMC_ASSIGN_OR_RETURN(UniqueFd fd, open_segment_(place.segment));
    NMC_ASSIGN_OR_RETURN(Segment opened,
                         Segment::open(std::move(fd), {reader_->index().boot_id(), place.segment, incarnation}));
    segment.emplace(Writable{incarnation, std::move(opened)});
  }
  if (place.offset > segment->segment.size() || bytes > segment->segment.size() - place.offset)
    return corrupt("store: a place outside segment {}", place.segment);
  return segment->segment.bytes(place.offset, bytes);
}

}  // namespace nmc::store
