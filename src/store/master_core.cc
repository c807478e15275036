#include "store/master_core.h"

#include <fcntl.h>

#include <algorithm>

#include "base/check.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/memory.h"

namespace nmc::store {
namespace {

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return Failure(os_error("duplicate", "a shared file's descriptor"));
  return copy;
}

}  // namespace

Result<std::unique_ptr<MasterCore>> MasterCore::create(const CoreOptions& options, SharedFiles files,
                                                       TouchClock& clock) {
  NMC_ASSIGN_OR_RETURN(IndexWriter index, IndexWriter::create(files, options.entries, machine_random()));
  std::unique_ptr<MasterCore> core(new MasterCore(options, std::move(files), clock, std::move(index)));
  MutexLock lock(core->mutex_);
  NMC_RETURN_IF_ERROR(core->clients_.reserve(core->index_.view().entries_ready()));
  return core;
}

void MasterCore::remove_files(SharedFiles& files) {
  for (const std::string& name : files.names()) {
    if (name == IndexWriter::kFileName || name.starts_with(Clients::kFilePrefix) ||
        name.starts_with(Segment::kFilePrefix))
      files.remove(name);
  }
}

MasterCore::MasterCore(const CoreOptions& options, SharedFiles files, TouchClock& clock, IndexWriter index)
    : options_(options),
      clock_(clock),
      files_(std::move(files)),
      index_(std::move(index)),
      clients_(files_, index_.view().entry_count(), index_.view().boot_id()),
      holdings_(index_.view().entries_ready()) {}

void MasterCore::set_observer(MasterObserver* observer) {
  MutexLock lock(mutex_);
  observer_ = observer;
  index_.set_tier_below(observer != nullptr);
  if (observer == nullptr) return;
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    if (!holdings_[entry].listed) continue;
    const std::uint64_t generation = generation_of(index_.entry(entry).commit.load(std::memory_order_relaxed));
    observer->on_commit(entry, generation, holdings_[entry].object_class, key_of_locked(entry));
  }
}

// ---- clients ----

Result<const PinTable*> MasterCore::add_client(Clients::Kind kind) {
  MutexLock lock(mutex_);
  return clients_.add(kind);
}

Result<ClientFiles> MasterCore::files_for(const PinTable& table) {
  ClientFiles files;
  files.client = table.client();
  NMC_ASSIGN_OR_RETURN(files.index, duplicate(index_.fd()));
  NMC_ASSIGN_OR_RETURN(files.pins, duplicate(table.fd()));
  files.open_segment = [this](std::uint32_t number) { return open_segment(number); };
  return files;
}

void MasterCore::drop_client(std::uint32_t client) {
  MutexLock lock(mutex_);
  // Its uses still count: in the order of eviction, and for leases.
  const PinTable* table = clients_.find(client);
  NMC_REQUIRE(table != nullptr, "client={}", client);
  const std::uint64_t now = clock_.ticks();
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    Holding& holding = holdings_[entry];
    const std::uint64_t word = table->word(entry).load(std::memory_order_relaxed);
    if (touch_of(word) == 0 || holding.state != EntryState::kCommitted) continue;
    if (tag_of(word) != tag_for_generation(generation_of(index_.entry(entry).commit.load(std::memory_order_relaxed))))
      continue;
    holding.last_read = std::max(holding.last_read, TouchClock::widen(touch_of(word), now));
  }
  clients_.drop(client);
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    if (holdings_[entry].state != EntryState::kReserved) continue;
    if (static_cast<std::uint32_t>(index_.rest(entry).owner.load(std::memory_order_relaxed)) != client) continue;
    abort_locked(entry);
    ++counters_.aborts;
  }
  sweep_limbo_locked();
}

const PinTable* MasterCore::find_client(std::uint32_t client) {
  MutexLock lock(mutex_);
  return clients_.find(client);
}

std::vector<std::uint32_t> MasterCore::clients() {
  MutexLock lock(mutex_);
  std::vector<std::uint32_t> numbers;
  for (const auto& client : clients_.all()) numbers.push_back(client->table.client());
  return numbers;
}

// ---- segments ----

MasterCore::MountedSegment::MountedSegment(Segment new_segment, std::size_t block_bytes, std::string new_name,
                                           std::uint64_t new_incarnation, std::vector<std::uint32_t>& positions)
    : segment(std::move(new_segment)),
      space(segment.size(), block_bytes),
      name(std::move(new_name)),
      incarnation(new_incarnation),
      orders{LruPolicy(positions), LruPolicy(positions), LruPolicy(positions), LruPolicy(positions)} {}

Result<std::uint32_t> MasterCore::mount(std::string_view name, std::uint64_t bytes, std::uint32_t owner) {
  const std::uint64_t capacity = bytes / OffsetAllocator::kAlignment * OffsetAllocator::kAlignment;
  if (capacity == 0) return invalid_argument("store: a segment of {} bytes, expected at least 64", bytes);
  if (bytes > kSegmentBytesMax)
    return resource_exhausted("store: a segment of {} bytes, {} is the most there can be", bytes, kSegmentBytesMax);
  if (OffsetAllocator::round_up(options_.block_bytes) > capacity)
    return invalid_argument("store: blocks of {} bytes don't fit a segment of {}", options_.block_bytes, capacity);
  if (name.empty() || name.size() > Segment::kNameBytesMax)
    return invalid_argument("store: a segment's name of {} bytes, expected 1 to {}", name.size(),
                            Segment::kNameBytesMax);
  MutexLock one_at_a_time(mount_mutex_);  // so that name and number stay free while the lock is given up
  for (;;) {
    SegmentId id;
    std::uint64_t ended_before = 0;
    {
      MutexLock lock(mutex_);
      if (is_mounted_locked(name)) return already_exists("store: a segment {} is mounted", name);
      // Looked for each time anew: one whose owner died meanwhile is better than memory that is short.
      if (const auto parked = find_parked_locked(capacity)) {
        revive_locked(*parked, name, owner);
        return *parked;
      }
      std::uint32_t number = 0;
      while (number < segments_.size() && segments_[number] != nullptr) ++number;
      if (number == kSegmentsMax) return resource_exhausted("store: {} segments are mounted", kSegmentsMax);
      id = {index_.view().boot_id(), number, incarnation_of(index_.view().segment_word(number)) + 1};
      ended_before = segments_ended_;
    }
    // Without the lock: the system needs a quarter of a second or more to find a gigabyte.
    Result<Segment> segment = Segment::create(files_, id, owner, name, capacity);
    if (segment) return add_segment(id, name, *std::move(segment));
    if (segment.error().code != ErrorCode::kResourceExhausted || !free_memory_for(name, capacity, ended_before))
      return Failure(std::move(segment).error());
  }
}

bool MasterCore::is_mounted_locked(std::string_view name) {
  return std::any_of(segments_.begin(), segments_.end(), [&](const auto& segment) {
    return segment != nullptr && segment->state == SegmentState::kMounted && segment->name == name;
  });
}

Result<std::uint32_t> MasterCore::add_segment(const SegmentId& id, std::string_view name, Segment segment) {
  MutexLock lock(mutex_);
  const Result<void> added =
      set_segment_locked(id.number, std::make_unique<MountedSegment>(std::move(segment), options_.block_bytes,
                                                                     std::string(name), id.incarnation, positions_));
  if (!added) {
    files_.remove(Segment::file_name(id.number));
    return Failure(added.error());
  }
  set_state_locked(static_cast<std::uint16_t>(id.number), SegmentState::kMounted);
  return id.number;
}

// What has left goes first, then what nobody has taken over, unless all of that wouldn't do. False: no segment has
// ended since `ended_before` was counted, and none is given up.
bool MasterCore::free_memory_for(std::string_view name, std::uint64_t bytes, std::uint64_t ended_before) {
  let_go_of_gone();
  {
    MutexLock lock(mutex_);
    if (segments_ended_ != ended_before) return true;
    std::uint64_t parked_bytes = 0;
    for (const auto& segment : segments_) {
      if (segment != nullptr && segment->state == SegmentState::kParked) parked_bytes += segment->space.capacity();
    }
    const auto parked = find_parked_locked(std::nullopt);
    if (!parked || (bytes > parked_bytes && bytes - parked_bytes > available_memory())) return false;
    log_info("store: parked segment {} makes room for {}", segments_[*parked]->name, name);
    unmount_locked(*parked);
  }
  let_go_of_gone();
  return true;
}

// The one parked last that has `bytes`, or the one parked first.
std::optional<std::uint16_t> MasterCore::find_parked_locked(std::optional<std::uint64_t> bytes) {
  std::optional<std::uint16_t> found;
  for (std::uint16_t number = 0; number < segments_.size(); ++number) {
    const MountedSegment* segment = segments_[number].get();
    if (segment == nullptr || segment->state != SegmentState::kParked) continue;
    if (bytes && segment->space.capacity() != *bytes) continue;
    if (found && (segment->parked_at > segments_[*found]->parked_at) != bytes.has_value()) continue;
    found = number;
  }
  return found;
}

void MasterCore::set_state_locked(std::uint16_t number, SegmentState state) {
  segments_[number]->state = state;
  index_.set_segment_word(number, make_segment_word(segments_[number]->incarnation, state));
}

Result<void> MasterCore::set_segment_locked(std::uint32_t number, std::unique_ptr<MountedSegment> segment) {
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, duplicate(segment->segment.fd()));
  if (number >= segments_.size()) segments_.resize(number + 1);
  segments_[number] = std::move(segment);
  MutexLock lock(fds_mutex_);
  if (number >= segment_fds_.size()) segment_fds_.resize(number + 1);
  segment_fds_[number] = std::move(fd);
  return {};
}

Result<void> MasterCore::park(std::uint32_t wanted) {
  MutexLock lock(mutex_);
  if (wanted >= segments_.size() || segments_[wanted] == nullptr || segments_[wanted]->state != SegmentState::kMounted)
    return not_found("store: no segment {} is mounted", wanted);
  const auto number = static_cast<std::uint16_t>(wanted);
  set_state_locked(number, SegmentState::kParked);
  segments_[number]->parked_at = clock_.stamp();
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    if (holdings_[entry].state != EntryState::kCommitted || holdings_[entry].placed.segment != number) continue;
    if (holdings_[entry].first_copy != kNoEntry) {
      drop_copy_locked(entry);
    } else if (holdings_[entry].listed) {
      promote_copy_locked(entry);
      if (holdings_[entry].listed) unlist_locked(entry);
      hide_locked(entry);
    }
  }
  return {};
}

// Of the objects that others have put anew meanwhile, those stay.
void MasterCore::revive_locked(std::uint16_t number, std::string_view name, std::uint32_t owner) {
  MountedSegment& segment = *segments_[number];
  segment.segment.set_owner(owner, name);
  segment.name = std::string(name);
  set_state_locked(number, SegmentState::kMounted);
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    const Holding& holding = holdings_[entry];
    if (holding.state != EntryState::kCommitted || holding.listed || holding.placed.segment != number) continue;
    if (holding.first_copy != kNoEntry) continue;
    forget_hidden_locked(entry);
    if (find_locked(key_of_locked(entry), index_.key_hash(entry))) {
      Pins::begin_dying(index_.entry(entry).commit);
      bury_locked(entry);
    } else {
      list_locked(entry, last_use_locked(entry));
    }
  }
  log_info("store: segment {} goes on with what a dead owner left there", name);
}

Result<void> MasterCore::unmount(std::uint32_t number) {
  MutexLock lock(mutex_);
  if (number >= segments_.size() || segments_[number] == nullptr || segments_[number]->state == SegmentState::kLeaving)
    return not_found("store: no segment {} is mounted", number);
  unmount_locked(static_cast<std::uint16_t>(number));
  return {};
}

void MasterCore::unmount_locked(std::uint16_t number) {
  set_state_locked(number, SegmentState::kLeaving);
  ++segments_[number]->entries;  // so that leaving it, below, is what ends it
  for (std::uint32_t entry = 0; entry < holdings_.size(); ++entry) {
    if (holdings_[entry].state != EntryState::kCommitted || holdings_[entry].placed.segment != number) continue;
    if (holdings_[entry].first_copy != kNoEntry) {
      drop_copy_locked(entry);
    } else {
      promote_copy_locked(entry);
      kill_locked(entry);
    }
  }
  leave_segment_locked(number);
}

void MasterCore::let_go_of_gone() {
  MutexLock letting_go(gone_mutex_);  // who wants the memory waits until it is back
  std::vector<std::unique_ptr<MountedSegment>> gone;
  {
    MutexLock lock(mutex_);
    gone.swap(gone_);
  }
  const std::size_t ended = gone.size();
  gone.clear();
  MutexLock lock(mutex_);
  segments_ended_ += ended;
}

void MasterCore::keep_house(Nanos parked_lifetime) {
  let_go_of_gone();
  MutexLock lock(mutex_);
  sweep_limbo_locked();
  take_back_lost_locked();
  while (const auto oldest = find_parked_locked(std::nullopt)) {
    if (segments_[*oldest]->parked_at > ticks_ago_locked(parked_lifetime)) return;
    log_info("store: nobody took segment {} over, it is unmounted", segments_[*oldest]->name);
    unmount_locked(*oldest);
  }
}

// One entry less. The last one out of a segment that is no longer mounted takes it along.
void MasterCore::leave_segment_locked(std::uint16_t number) {
  MountedSegment& segment = *segments_[number];
  if (--segment.entries > 0 || segment.state != SegmentState::kLeaving) return;
  // Nothing in it is pinned, so the number may have another life.
  index_.set_segment_word(number, make_segment_word(segment.incarnation + 1, SegmentState::kLeaving));
  files_.remove(Segment::file_name(number));
  gone_.push_back(std::move(segments_[number]));
  MutexLock lock(fds_mutex_);
  segment_fds_[number] = UniqueFd();
}

Result<UniqueFd> MasterCore::open_segment(std::uint32_t number) {
  MutexLock lock(fds_mutex_);
  if (number >= segment_fds_.size() || !segment_fds_[number]) return not_found("store: there is no segment {}", number);
  return duplicate(segment_fds_[number].get());
}

std::vector<MasterCore::SegmentInfo> MasterCore::segments() {
  MutexLock lock(mutex_);
  std::vector<SegmentInfo> infos;
  for (std::uint32_t number = 0; number < segments_.size(); ++number) {
    if (segments_[number] == nullptr) continue;
    const MountedSegment& segment = *segments_[number];
    infos.push_back({number, segment.name, segment.segment.owner(), segment.space.capacity(),
                     segment.space.used_bytes(), segment.state});
  }
  return infos;
}

std::vector<std::uint16_t> MasterCore::mounted_locked() {
  std::vector<std::uint16_t> numbers;
  for (std::size_t number = 0; number < segments_.size(); ++number) {
    if (segments_[number] != nullptr && segments_[number]->state == SegmentState::kMounted)
      numbers.push_back(static_cast<std::uint16_t>(number));
  }
  return numbers;
}

// Those that may take the object, in the order in which they are asked: first the preferred ones, then the emptiest.
std::vector<std::uint16_t> MasterCore::choose_segments_locked(const Wish& wish) {
  std::vector<std::uint16_t> numbers = mounted_locked();
  std::erase_if(numbers, [&](std::uint16_t number) NMC_NO_THREAD_SAFETY {
    return std::find(wish.avoid.begin(), wish.avoid.end(), number) != wish.avoid.end();
  });
  if (numbers.size() < 2) return numbers;
  const auto rank = [&](std::uint16_t number) NMC_NO_THREAD_SAFETY {
    const MountedSegment& segment = *segments_[number];
    const auto preferred = std::find(wish.preferred.begin(), wish.preferred.end(), segment.name);
    return std::pair(preferred - wish.preferred.begin(),
                     segment.space.used_bytes() - segment.space.capacity());  // wraps: the emptiest is lowest
  };
  std::stable_sort(numbers.begin(), numbers.end(), [&](std::uint16_t a, std::uint16_t b) { return rank(a) < rank(b); });
  return numbers;
}

}  // namespace nmc::store
