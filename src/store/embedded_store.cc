#include "store/embedded_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/disk_medium.h"
#include "store/remote_medium.h"

namespace nmc::store {
namespace {

CoreOptions core_options(const StoreOptions& options) {
  constexpr std::size_t kSpare = 1024;  // reservations, tails and limbo
  constexpr std::size_t kObjectBytesAssumed = 16 * 1024;
  const std::size_t objects = options.block_bytes > 0 ? 2 * (options.dram_bytes / options.block_bytes)
                                                      : options.dram_bytes / kObjectBytesAssumed;
  const std::size_t entries = options.index_entries > 0 ? options.index_entries : objects + kSpare;
  CoreOptions core;
  core.block_bytes = options.block_bytes;
  core.tail_bytes_max = options.tail_bytes.value_or(options.dram_bytes / 20);
  core.entries.initial = static_cast<std::uint32_t>(std::min<std::size_t>(entries, kIndexEntriesMax));
  return core;
}

}  // namespace

EmbeddedStore::~EmbeddedStore() {
  tiers_.reset();  // write their queues, which have pins
  if (reader_ == nullptr) return;
  NMC_REQUIRE(reader_->pins_held() == 0, "{} pins outlive their store", reader_->pins_held());
  StoreStats stats;
  master_->fill_counters(stats);
  NMC_REQUIRE(stats.reservations == 0, "{} reservations outlive their store", stats.reservations);
}

Result<std::unique_ptr<EmbeddedStore>> EmbeddedStore::create(StoreOptions options) {
  std::unique_ptr<EmbeddedStore> store(new EmbeddedStore(std::move(options)));
  NMC_RETURN_IF_ERROR(store->start());
  return store;
}

Result<void> EmbeddedStore::start() {
  NMC_ASSIGN_OR_RETURN(master_, MasterCore::create(core_options(options_), SharedFiles::in_memory(), clock_));
  NMC_RETURN_IF_ERROR(master_->mount("store", options_.dram_bytes, 0));
  log_info("store: {} bytes in a memfd, gone with its last holder; {} index entries", options_.dram_bytes,
           master_->index().entries_ready());
  NMC_ASSIGN_OR_RETURN(ClientFiles files, add_client());
  const std::uint32_t own = files.client;
  NMC_ASSIGN_OR_RETURN(reader_, SharedStoreReader::open(std::move(files), clock_));
  // Our own pins are the engine's: a miss would only make it compute what it holds. Others are held to a quarter.
  master_->set_limbo_cap(options_.dram_bytes / 4, own);
  tiers_ = std::make_unique<Tiers>(*master_, *reader_, clock_);
  // What is queued is evicted last, so the queues leave half of the memory to the order of use.
  const bool two = !options_.disk_dir.empty() && !options_.server.empty();
  const std::uint64_t queue_bytes_max =
      std::max<std::uint64_t>(options_.dram_bytes / (two ? 4 : 2), options_.block_bytes);
  if (!options_.disk_dir.empty()) {
    DiskLogOptions log;
    log.folder = options_.disk_dir;
    log.bytes_max = options_.disk_bytes;
    log.clock = options_.clock;
    NMC_ASSIGN_OR_RETURN(auto disk, DiskMedium::open(std::move(log)));
    NMC_RETURN_IF_ERROR(tiers_->add(std::move(disk), queue_bytes_max));
  }
  if (!options_.server.empty()) {
    NMC_ASSIGN_OR_RETURN(
        auto remote,
        RemoteMedium::connect({.server = options_.server, .token = options_.token, .tls_ca = options_.tls_ca},
                              *options_.clock));
    NMC_RETURN_IF_ERROR(tiers_->add(std::move(remote), queue_bytes_max));
  }
  if (!tiers_->empty()) master_->set_observer(tiers_.get());
  return {};
}

Result<ClientFiles> EmbeddedStore::add_client() {
  NMC_ASSIGN_OR_RETURN(const PinTable* table, master_->add_client(Clients::Kind::kUser));
  return master_->files_for(*table);
}

void EmbeddedStore::drop_client(std::uint32_t client) { master_->drop_client(client); }

Reservation EmbeddedStore::reservation_of(const MasterCore::Space& space, ObjectClass object_class) {
  return Reservation(*this, {space.entry, object_class, space.generation, space.bytes});
}

Result<Reservation> EmbeddedStore::reserve(ObjectClass object_class, std::size_t bytes) {
  NMC_ASSIGN_OR_RETURN(const MasterCore::Space space,
                       master_->reserve({object_class, bytes, reader_->pins().client()}));
  return reservation_of(space, object_class);
}

Result<std::vector<Reservation>> EmbeddedStore::reserve_blocks(std::size_t count) {
  NMC_ASSIGN_OR_RETURN(const auto spaces, master_->reserve_blocks(count, reader_->pins().client()));
  std::vector<Reservation> reservations;
  reservations.reserve(count);
  for (const MasterCore::Space& space : spaces) reservations.push_back(reservation_of(space, ObjectClass::kBlock));
  return reservations;
}

std::size_t EmbeddedStore::blocks_total() const {
  StoreStats stats;
  master_->fill_counters(stats);
  return stats.blocks_total;
}

std::size_t EmbeddedStore::blocks_available() const { return master_->blocks_available(); }

void EmbeddedStore::give_back(const Reservation::Parts& parts) { master_->abort(parts.entry, parts.generation); }

Result<Pin> EmbeddedStore::commit(Reservation&& reservation, std::string_view key) {
  return commit_as(reservation, key, std::nullopt);
}

Result<Pin> EmbeddedStore::commit_as(Reservation& reservation, std::string_view key,
                                     std::optional<std::uint64_t> checksum) {
  NMC_REQUIRE(reservation.store() == this, "the reservation is empty or another store's");
  MasterCore::Commit commit;
  commit.entry = reservation.parts().entry;
  commit.generation = reservation.generation();
  commit.key = key;
  commit.pin_for = &reader_->pins();
  commit.stamp = clock_.stamp();
  commit.checksum = checksum;
  NMC_ASSIGN_OR_RETURN(const MasterCore::Held held, master_->commit(commit));
  reservation.forget();
  return reader_->adopt(held.entry, held.generation);
}

Result<void> EmbeddedStore::put(ObjectClass object_class, std::string_view key, std::span<const std::byte> bytes) {
  NMC_ASSIGN_OR_RETURN(Reservation reservation, reserve(object_class, bytes.size()));
  const std::uint64_t checksum = copy_and_checksum64(reservation.bytes(), bytes);
  NMC_ASSIGN_OR_RETURN(const Pin pin, commit_as(reservation, key, checksum));
  return {};
}

std::optional<Pin> EmbeddedStore::lookup(std::string_view key) {
  std::optional<Pin> pin = find(key);
  reader_->count_lookup(pin.has_value());
  return pin;
}

std::optional<Pin> EmbeddedStore::find(std::string_view key) {
  Pin pin;
  SharedStoreReader::Answer answer = reader_->find(key, pin);
  if (answer == SharedStoreReader::Answer::kUnsettled) {
    const auto held = master_->pin(key, reader_->pins(), clock_.stamp());
    if (!held) return std::nullopt;
    return reader_->adopt(held->entry, held->generation);
  }
  if (answer == SharedStoreReader::Answer::kMiss) return std::nullopt;
  return pin;
}

std::optional<Pin> EmbeddedStore::fetch(std::string_view key, ObjectClass object_class, std::size_t bytes) {
  std::optional<Pin> pin = find(key);
  const bool fits = pin && (bytes == 0 || pin->bytes().size() == bytes);
  reader_->count_lookup(fits);
  if (fits) return pin;
  if (pin) return std::nullopt;
  std::string why;
  pin = tiers_->restore(key, object_class, bytes, &why);
  if (!why.empty()) log_info("store: not restored: {}", why);
  return pin && (bytes == 0 || pin->bytes().size() == bytes) ? std::move(pin) : std::nullopt;
}

Run EmbeddedStore::fetch_run(std::span<const std::string> keys) {
  Run run;
  // First all that is in memory: restoring an earlier block must not evict a later one.
  std::vector<std::optional<Pin>> found;
  std::size_t below = 0;  // of the keys before this one, those that aren't in memory are in a tier
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::optional<Pin> pin = find(keys[i]);
    const bool fits = pin && pin->bytes().size() == options_.block_bytes;
    reader_->count_lookup(fits);
    if (!pin && i >= below) below = i + tiers_->probe_run(keys.subspan(i), options_.block_bytes, /*ask=*/true);
    if (!pin && i >= below) break;
    if (pin && !fits) {
      run.stop_reason = fmt::format("{} bytes in memory, expected {}", pin->bytes().size(), options_.block_bytes);
      break;
    }
    found.push_back(std::move(pin));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) restore_blocks(keys.subspan(i), std::span(found).subspan(i), &run.stop_reason);
    if (!found[i]) break;
    run.from_disk += found[i]->source() == Source::kDisk ? 1 : 0;
    run.from_remote += found[i]->source() == Source::kRemote ? 1 : 0;
    run.pins.push_back(*std::move(found[i]));
  }
  touch_run(run.pins);
  return run;
}

// The first of `found`, and perhaps some that follow. Gives up blocks that come later in the chain, from its end, where
// there is no room otherwise.
std::size_t EmbeddedStore::restore_blocks(std::span<const std::string> keys, std::span<std::optional<Pin>> found,
                                          std::string* why) {
  std::span<std::optional<Pin>> later = found.subspan(1);
  std::size_t room = master_->blocks_available();
  while (room == 0 && !later.empty()) {
    later.back().reset();
    later = later.first(later.size() - 1);
    room = master_->blocks_available();
  }
  std::size_t missing = 1;
  while (missing < std::min(found.size(), room) && !found[missing]) ++missing;
  return tiers_->restore_run(keys, ObjectClass::kBlock, options_.block_bytes, found.first(missing), why);
}

void EmbeddedStore::touch_run(std::span<const Pin> chain) {
  for (auto pin = chain.rbegin(); pin != chain.rend(); ++pin) reader_->touch(*pin);
}

std::size_t EmbeddedStore::probe_run(std::span<const std::string> keys) const {
  std::size_t count = 0;
  const auto there = [this](const std::string& key) {
    return reader_->contains(key) || tiers_->knows(key, options_.block_bytes);
  };
  while (count < keys.size() && there(keys[count])) ++count;
  return count;
}

bool EmbeddedStore::remove(std::string_view key) {
  const bool was_there = master_->remove(key) == MasterCore::Removal::kRemoved;
  tiers_->wait_removed(key);
  return was_there;
}

Result<void> EmbeddedStore::flush() { return tiers_->flush(); }

std::uint64_t EmbeddedStore::held() const {
  StoreStats stats;
  master_->fill_counters(stats);
  return reader_->pins_held() + stats.reservations;
}

StoreStats EmbeddedStore::stats() const {
  StoreStats stats;
  master_->fill_stats(stats);
  tiers_->fill_stats(stats);
  return stats;
}

}  // namespace nmc::store
