#include "store/node_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/allocator.h"
#include "store/protocol.h"

namespace nmc::store {
namespace {

using net::BodyReader;
using net::BodyWriter;
using net::Channel;

// An engine's step takes milliseconds: it had better compute without the store than wait for it.
constexpr Nanos kConnectDeadline = std::chrono::seconds(1);
constexpr Nanos kProgressDeadline = std::chrono::seconds(2);
// A master that didn't answer isn't asked again for so long.
constexpr Nanos kSilence = std::chrono::milliseconds(500);
constexpr Nanos kStatsAge = std::chrono::seconds(1);  // of what blocks_total() goes by
constexpr std::size_t kBlocksAMessage = 1024;
// Blocks in reserve: at most so many, and such a part of what this process brings, or of all if it brings nothing.
constexpr std::size_t kSparesMax = 64, kPartOfOwn = 8, kPartOfAll = 64;
constexpr int kCommitTries = 3;
constexpr std::size_t kRestoredAtOnce = 32;  // blocks: those pinned first may not fill the memory for the later ones

ClientOptions client_options(const StoreOptions& options) {
  ClientOptions client;
  client.server = options.server;
  client.segment_bytes = options.dram_bytes;
  client.token = options.token;
  client.connect_deadline = kConnectDeadline;
  client.progress_deadline = kProgressDeadline;
  client.keep_segment = true;
  return client;
}

std::uint64_t identity_of(Membership& shared) { return shared.reader().pins().identity(); }

}  // namespace

NodeStore::NodeStore(StoreOptions options)
    : Store(std::move(options)), link_(client_options(options_)), silence_(*options_.clock, kSilence) {}

Result<std::unique_ptr<NodeStore>> NodeStore::join(StoreOptions options) {
  if (options.block_bytes == 0) return invalid_argument("store: block_bytes is 0, a node's store is for blocks");
  if (!options.disk_dir.empty())
    return invalid_argument("store: disk {} is wanted, but with {} the disk is its master's", options.disk_dir.string(),
                            options.server);
  std::unique_ptr<NodeStore> store(new NodeStore(std::move(options)));
  NMC_RETURN_IF_ERROR(store->start());
  return store;
}

Result<void> NodeStore::start() {
  NMC_RETURN_IF_ERROR(link_.open());
  NMC_ASSIGN_OR_RETURN(const StoreStats stats, ask_stats());
  if (stats.segment_bytes < options_.block_bytes)
    return resource_exhausted("store: {} has {} bytes of memory, less than one block of {}: bring some (--dram-bytes)",
                              options_.server, stats.segment_bytes, options_.block_bytes);
  log_info("store: {} bytes brought to {}, which has {} now", options_.dram_bytes, options_.server,
           stats.segment_bytes);
  const std::uint64_t own = options_.dram_bytes / OffsetAllocator::round_up(options_.block_bytes);
  spares_max_ = std::min<std::size_t>(kSparesMax, std::max(own / kPartOfOwn, stats.blocks_total / kPartOfAll));
  (void)reserve_blocks(spares_max_);  // they come back as spares; where there is no room for them, there are none yet
  return {};
}

NodeStore::~NodeStore() {
  Membership* const shared = link_.membership();
  if (shared == nullptr) return;
  {
    MutexLock lock(mutex_);  // the master gives the space to others once this client is gone
    for (const Reservation::Parts& spare : spares_) {
      if (spare.home == identity_of(*shared)) Pins::unpin(shared->reader().pins().word(spare.entry));
    }
  }
  NMC_REQUIRE(shared->reader().pins_held() == 0, "{} pins outlive their store", shared->reader().pins_held());
}

Result<void> NodeStore::check_not_silent() const {
  if (silence_.holds()) return unavailable("store: {} didn't answer just now", options_.server);
  return {};
}

Result<void> NodeStore::call(Op op, net::ByteSpan body, const MasterLink::OnReply& on_reply) const {
  NMC_RETURN_IF_ERROR(check_not_silent());
  Result<void> done = link_.call(op, body, on_reply);
  if (!done && (done.error().code == ErrorCode::kUnavailable || done.error().code == ErrorCode::kDeadlineExceeded)) {
    log_warning("store: {}", done.error().message);
    silence_.begin();
  }
  return done;
}

// ---- reserving ----

Result<Reservation> NodeStore::reserve(ObjectClass object_class, std::size_t bytes) {
  if (object_class == ObjectClass::kBlock) {
    if (auto spare = take_spare()) return *std::move(spare);
  }
  NMC_ASSIGN_OR_RETURN(std::vector<Reservation> one, reserve_some(object_class, bytes, 1));
  return std::move(one[0]);
}

Result<std::vector<Reservation>> NodeStore::reserve_blocks(std::size_t count) {
  std::vector<Reservation> all;
  while (all.size() < count) {
    if (auto spare = take_spare()) {
      all.push_back(*std::move(spare));
      continue;
    }
    const std::size_t some = std::min(kBlocksAMessage, count - all.size());
    NMC_ASSIGN_OR_RETURN(std::vector<Reservation> more, reserve_some(ObjectClass::kBlock, options_.block_bytes, some));
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

Result<std::vector<Reservation>> NodeStore::reserve_some(ObjectClass object_class, std::size_t bytes,
                                                         std::size_t count) {
  if (auto injected = failpoint("store.full")) return resource_exhausted("store: {}", injected->message);
  BodyWriter body;
  put_options(body, {});
  body.put_u8(static_cast<std::uint8_t>(object_class)).put_u8(static_cast<std::uint8_t>(Tenure::kHeld));
  body.put_u32(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) body.put_u64(bytes);
  Membership& shared = *link_.membership();
  std::vector<PlaceOnWire> places;
  StoreCode refused = StoreCode::kOk;
  NMC_RETURN_IF_ERROR(call(Op::kReserve, body.bytes(), [&](const Channel::Reply& reply) {
    BodyReader reader = reply.reader();
    for (std::size_t i = 0; i < count && reader.ok(); ++i) {
      const auto code = static_cast<StoreCode>(reader.get_u32("code"));
      if (code != StoreCode::kOk) {
        refused = code;
        continue;
      }
      if (reader.get_u8("copies") != 1) return Result<void>(corrupt("store: several copies of a held place"));
      places.push_back(get_place(reader));
    }
    return reader.finish();
  }));
  if (link_.membership() != &shared)  // joined anew meanwhile: which store's places these are, nobody knows
    return unavailable("store: {} is a new store since just now", options_.server);
  std::vector<Reservation> taken;
  for (const PlaceOnWire& place : places) {
    NMC_ASSIGN_OR_RETURN(Reservation reservation, take(shared, place, object_class, bytes));
    taken.push_back(std::move(reservation));
  }
  if (refused == StoreCode::kNoAvailableHandle || refused == StoreCode::kInvalidParams)
    return resource_exhausted("store: {} has no room for an object of {} bytes", options_.server, bytes);
  if (refused != StoreCode::kOk)
    return unavailable("store: {} bytes were refused: {}", bytes, store_code_name(outcome_of(refused)));
  return taken;
}

// From here on it is ours, unless the master has given up waiting for this.
Result<Reservation> NodeStore::take(Membership& shared, const PlaceOnWire& place, ObjectClass object_class,
                                    std::size_t bytes) {
  const IndexView& index = shared.reader().index();
  if (place.entry >= index.entries_ready()) return corrupt("store: a place of entry {}", place.entry);
  NMC_ASSIGN_OR_RETURN(const std::span<std::byte> space, shared.writable(place, bytes));
  const std::uint64_t reserved = make_commit_word(place.generation, EntryState::kReserved);
  if (!Pins::pin(index.entry(place.entry).commit, reserved, shared.reader().pins().word(place.entry), 0))
    return unavailable("store: the place came too late and is gone");
  reservations_.fetch_add(1, std::memory_order_relaxed);
  return Reservation(*this, {place.entry, object_class, place.generation, space, identity_of(shared)});
}

void NodeStore::give_back(const Reservation::Parts& parts) {
  reservations_.fetch_sub(1, std::memory_order_relaxed);
  if (!keep_spare(parts)) abandon(parts);
}

std::optional<Reservation> NodeStore::take_spare() {
  Membership& shared = *link_.membership();
  MutexLock lock(mutex_);
  while (!spares_.empty()) {
    const Reservation::Parts spare = spares_.back();
    spares_.pop_back();
    if (spare.home != identity_of(shared)) continue;  // of a store that is gone
    reservations_.fetch_add(1, std::memory_order_relaxed);
    return Reservation(*this, spare);
  }
  return std::nullopt;
}

bool NodeStore::keep_spare(const Reservation::Parts& parts) {
  if (parts.object_class != ObjectClass::kBlock) return false;
  MutexLock lock(mutex_);
  if (spares_.size() >= spares_max_) return false;
  spares_.push_back(parts);
  return true;
}

void NodeStore::abandon(const Reservation::Parts& parts) {
  Membership& shared = *link_.membership();
  if (parts.home != identity_of(shared)) return;  // of a store that is gone
  Pins::unpin(shared.reader().pins().word(parts.entry));
  BodyWriter body;
  body.put_u64(parts.home).put_u32(1).put_u32(parts.entry).put_u64(parts.generation);
  (void)call(Op::kAbort, body.bytes());  // lost, it is missed by the master: nobody has it pinned
}

// ---- committing ----

Result<StoreCode> NodeStore::send_commit(const Reservation& reservation, std::string_view key, std::uint64_t checksum) {
  BodyWriter body;
  put_options(body, {});
  body.put_u64(reservation.parts().home).put_u8(1).put_u32(1);
  body.put_u32(reservation.parts().entry).put_u64(reservation.generation()).put_u8(0);
  body.put_u64(checksum).put_string(key);
  StoreCode code = StoreCode::kInternalError;
  NMC_RETURN_IF_ERROR(call(Op::kCommit, body.bytes(), [&](const Channel::Reply& reply) {
    BodyReader reader = reply.reader();
    code = static_cast<StoreCode>(reader.get_u32("code"));
    return reader.finish();
  }));
  return code;
}

// What was held as a reservation is held as an object.
Pin NodeStore::pin_own(Membership& shared, Reservation& reservation) {
  const std::uint32_t entry = reservation.parts().entry;
  shared.reader().pins().verified(entry).store(reservation.generation(), std::memory_order_relaxed);
  Pin pin = shared.reader().adopt(entry, reservation.generation());
  shared.reader().touch(pin);
  reservation.forget();
  reservations_.fetch_sub(1, std::memory_order_relaxed);
  return pin;
}

Result<Pin> NodeStore::commit(Reservation&& reservation, std::string_view key) {
  NMC_REQUIRE(reservation.store() == this, "the reservation is empty or another store's");
  Membership& shared = *link_.membership();
  if (reservation.parts().home != identity_of(shared))
    return permission_denied("store: the reservation is of a store that is gone");
  NMC_RETURN_IF_ERROR(check_not_silent());
  const IndexEntry& entry = shared.reader().index().entry(reservation.parts().entry);
  const std::uint64_t checksum = checksum64(std::span<const std::byte>(reservation.bytes()));
  for (int i = 0; i < kCommitTries; ++i) {
    NMC_ASSIGN_OR_RETURN(const StoreCode code, send_commit(reservation, key, checksum));
    // A commit that is sent twice, since the first answer was lost, is refused when it had succeeded.
    const std::uint64_t committed = make_commit_word(reservation.generation(), EntryState::kCommitted);
    if (code == StoreCode::kOk || entry.commit.load(std::memory_order_acquire) == committed)
      return pin_own(shared, reservation);
    if (code != StoreCode::kObjectAlreadyExists)
      return permission_denied("store: a commit was refused: {}", store_code_name(outcome_of(code)));
    std::optional<Pin> winner = shared.reader().lookup(key);
    if (!winner) continue;  // gone again already: then the key is ours to take
    if (winner->bytes().size() != reservation.bytes().size())
      return already_exists("store: the key belongs to an object of {} bytes, this one has {}", winner->bytes().size(),
                            reservation.bytes().size());
    const Reservation given_back = std::move(reservation);
    return *std::move(winner);
  }
  return unavailable("store: a key was taken and gone {} times", kCommitTries);
}

Result<void> NodeStore::put(ObjectClass object_class, std::string_view key, std::span<const std::byte> bytes) {
  NMC_ASSIGN_OR_RETURN(Reservation reservation, reserve(object_class, bytes.size()));
  std::copy(bytes.begin(), bytes.end(), reservation.bytes().begin());
  NMC_ASSIGN_OR_RETURN(const Pin pin, commit(std::move(reservation), key));
  return {};
}

// ---- reading ----

std::optional<Pin> NodeStore::lookup(std::string_view key) { return link_.membership()->reader().lookup(key); }

std::optional<Pin> NodeStore::fetch(std::string_view key, ObjectClass object_class, std::size_t bytes) {
  std::optional<Pin> pin = lookup(key);
  const std::string name(key);
  if (!pin && restore(std::span(&name, 1), object_class, bytes) > 0) {
    pin = lookup(key);
    if (pin) pin->set_source(Source::kDisk);
  }
  return pin && (bytes == 0 || pin->bytes().size() == bytes) ? std::move(pin) : std::nullopt;
}

// By the master, from the tier below its memory. How many of keys[0..] were in memory afterwards.
std::size_t NodeStore::restore(std::span<const std::string> keys, ObjectClass object_class, std::size_t bytes) {
  if (!link_.membership()->reader().index().has_tier_below()) return 0;
  BodyWriter body;
  body.put_u8(static_cast<std::uint8_t>(object_class)).put_u64(bytes);
  body.put_u32(static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) body.put_string(key);
  std::size_t restored = 0;
  const Result<void> done = call(Op::kRestore, body.bytes(), [&](const Channel::Reply& reply) {
    BodyReader reader = reply.reader();
    bool all = true;
    for (std::size_t i = 0; i < keys.size() && reader.ok(); ++i) {
      all = reader.get_u32("restored") == 1 && all;
      restored += all ? 1 : 0;
    }
    return reader.finish();
  });
  return done ? restored : 0;
}

Run NodeStore::fetch_run(std::span<const std::string> keys) {
  Run run;
  std::size_t restored_until = 0;  // keys before this one, of those that were missed, were brought up
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::optional<Pin> pin = lookup(keys[i]);
    if (!pin && i >= restored_until) {
      const auto next = keys.subspan(i, std::min(keys.size() - i, kRestoredAtOnce));
      restored_until = i + restore(next, ObjectClass::kBlock, options_.block_bytes);
      if (i < restored_until) pin = lookup(keys[i]);
    }
    if (!pin) break;
    if (pin->bytes().size() != options_.block_bytes) {
      run.stop_reason = fmt::format("{} bytes in memory, expected {}", pin->bytes().size(), options_.block_bytes);
      break;
    }
    if (i < restored_until) {
      pin->set_source(Source::kDisk);
      ++run.from_disk;
    }
    run.pins.push_back(*std::move(pin));
  }
  touch_run(run.pins);
  return run;
}

void NodeStore::touch_run(std::span<const Pin> chain) {
  SharedStoreReader& reader = link_.membership()->reader();
  for (auto pin = chain.rbegin(); pin != chain.rend(); ++pin) reader.touch(*pin);
}

std::size_t NodeStore::probe_run(std::span<const std::string> keys) const {
  SharedStoreReader& reader = link_.membership()->reader();
  std::size_t count = 0;
  while (count < keys.size() && reader.contains(keys[count])) ++count;
  return count;
}

bool NodeStore::remove(std::string_view key) {
  BodyWriter body;
  body.put_u8(1).put_u32(1).put_string(key);
  bool removed = false;
  const Result<void> done = call(Op::kRemove, body.bytes(), [&](const Channel::Reply& reply) {
    BodyReader reader = reply.reader();
    removed = static_cast<StoreCode>(reader.get_u32("code")) == StoreCode::kOk;
    return reader.finish();
  });
  return done && removed;
}

// ---- counting ----

Result<StoreStats> NodeStore::ask_stats() const {
  StoreStats stats;
  NMC_RETURN_IF_ERROR(call(Op::kStats, {}, [&](const Channel::Reply& reply) {
    BodyReader reader = reply.reader();
    stats = get_stats(reader);
    return reader.finish();
  }));
  stats.blocks_total = stats.segment_bytes / OffsetAllocator::round_up(options_.block_bytes);
  MutexLock lock(mutex_);
  last_stats_ = stats;
  last_stats_at_ = options_.clock->now();
  return stats;
}

std::size_t NodeStore::blocks_total() const {
  {
    MutexLock lock(mutex_);
    if (options_.clock->now() - last_stats_at_ < kStatsAge) return last_stats_.blocks_total;
  }
  if (const auto stats = ask_stats()) return stats->blocks_total;
  MutexLock lock(mutex_);
  return last_stats_.blocks_total;
}

std::uint64_t NodeStore::held() const {
  const std::uint64_t pinned = link_.membership()->reader().pins_held();  // reservations and spares among them
  MutexLock lock(mutex_);
  return pinned - std::min<std::uint64_t>(pinned, spares_.size());
}

StoreStats NodeStore::stats() const {
  (void)ask_stats();
  StoreStats stats;
  {
    MutexLock lock(mutex_);
    stats = last_stats_;
  }
  const SharedStoreReader& reader = link_.membership()->reader();
  std::uint64_t spares = 0;
  {
    MutexLock lock(mutex_);
    spares = spares_.size();
  }
  stats.blocks_reserved -= std::min(stats.blocks_reserved, spares);  // as good as free
  stats.reservations = reservations_.load(std::memory_order_relaxed);
  stats.pins = reader.pins_held();
  std::uint64_t held = 0;
  for (std::uint32_t entry = 0; entry < reader.index().entries_ready(); ++entry)
    held += pin_count_of(reader.pins().word(entry).load(std::memory_order_relaxed)) > 0 ? 1 : 0;
  stats.pins -= std::min(stats.pins, stats.reservations + spares);
  stats.blocks_pinned = held - std::min(held, stats.reservations + spares);
  return stats;
}

}  // namespace nmc::store
