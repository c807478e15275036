#include "store/tiers.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "base/failpoint.h"

namespace nmc::store {

Result<void> Tiers::add(std::unique_ptr<TierMedium> medium, std::uint64_t queue_bytes_max) {
  NMC_ASSIGN_OR_RETURN(auto tier, LowerTier::create(std::move(medium), master_, clock_, queue_bytes_max));
  tiers_.push_back(std::move(tier));
  return {};
}

// ---- what the master tells ----

void Tiers::on_commit(std::uint32_t entry, std::uint64_t generation, ObjectClass object_class, std::string_view key) {
  for (const auto& tier : tiers_) tier->on_commit(entry, generation, object_class, key);
}

bool Tiers::on_remove(std::string_view key) {
  bool had = false;
  for (const auto& tier : tiers_) had = tier->on_remove(key) || had;
  return had;
}

bool Tiers::relieve() {
  return std::any_of(tiers_.begin(), tiers_.end(), [](const auto& tier) { return tier->relieve(); });
}

// ---- looking ----

bool Tiers::knows(std::string_view key, std::uint64_t bytes) const {
  return std::any_of(tiers_.begin(), tiers_.end(),
                     [&](const auto& tier) { return tier->size_of(key, /*ask=*/false) == bytes; });
}

std::optional<std::uint64_t> Tiers::known_size(std::string_view key) const {
  for (const auto& tier : tiers_) {
    if (const auto size = tier->size_of(key, /*ask=*/false)) return size;
  }
  return std::nullopt;
}

std::vector<std::string> Tiers::known_keys() const {
  std::vector<std::string> keys;
  for (const auto& tier : tiers_) {
    std::vector<std::string> more = tier->known_keys();
    keys.insert(keys.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return keys;
}

std::size_t Tiers::probe_run(std::span<const std::string> keys, std::uint64_t bytes, bool ask) const {
  std::size_t count = 0;
  while (count < keys.size()) {
    if (knows(keys[count], bytes)) {
      ++count;
      continue;
    }
    std::size_t more = 0;
    for (const auto& tier : tiers_) {
      if (ask && more == 0) more = tier->probe_run(keys.subspan(count), bytes);
    }
    if (more == 0) break;
    count += more;
  }
  return count;
}

// ---- restoring ----

std::optional<Pin> Tiers::restore(std::string_view key, ObjectClass object_class, std::uint64_t bytes,
                                  std::string* why) {
  std::optional<Pin> pin;
  for (const auto& tier : tiers_) {
    if (restore_from(*tier, std::span(&key, 1), object_class, bytes, std::span(&pin, 1), why) > 0) break;
  }
  return pin;
}

std::size_t Tiers::restore_run(std::span<const std::string> keys, ObjectClass object_class, std::uint64_t bytes,
                               std::span<std::optional<Pin>> into, std::string* why) {
  for (const auto& tier : tiers_) {
    const std::size_t together = std::min({keys.size(), into.size(), tier->reads_at_once()});
    const std::vector<std::string_view> views(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(together));
    if (const std::size_t count = restore_from(*tier, views, object_class, bytes, into.first(together), why))
      return count;
  }
  return 0;
}

std::size_t Tiers::restore_from(LowerTier& tier, std::span<const std::string_view> keys, ObjectClass object_class,
                                std::uint64_t bytes, std::span<std::optional<Pin>> into, std::string* why) {
  if (!tier.takes(object_class)) return 0;
  // Before the look: a removal from here on is seen.
  std::deque<LowerTier::Restoring> restoring;
  for (const std::string_view key : keys) restoring.emplace_back(tier, key);
  if (!tier.is_shared() || bytes == 0) {
    const std::optional<std::uint64_t> size = tier.size_of(keys[0]);
    if (!size) return 0;
    if (bytes != 0 && *size != bytes) {
      *why = fmt::format("{} bytes on {}, expected {}", *size, tier.name(), bytes);
      return 0;
    }
    bytes = *size;
  }
  if (const auto injected = failpoint("store.restore")) {
    *why = injected->message;
    return 0;
  }
  std::vector<MasterCore::Space> spaces;
  std::vector<TierRead> reads;
  while (spaces.size() < keys.size()) {
    const auto space = master_.reserve({object_class, bytes, reader_.pins().client()});
    if (!space && spaces.empty()) *why = space.error().message;
    if (!space) break;
    reads.push_back({keys[spaces.size()], space->bytes});
    spaces.push_back(*space);
  }
  std::size_t restored = 0;
  const std::size_t read = spaces.empty() ? 0 : tier.read(reads, why);
  for (std::size_t i = 0; i < read && restored == i; ++i) {
    into[i] = commit(spaces[i], keys[i], restoring[i], tier, why);
    restored += into[i] ? 1 : 0;
  }
  for (const MasterCore::Space& space : spaces)
    master_.abort(space.entry, space.generation);  // those that are still one
  return restored;
}

std::optional<Pin> Tiers::commit(const MasterCore::Space& space, std::string_view key,
                                 const LowerTier::Restoring& restoring, LowerTier& tier, std::string* why) {
  MasterCore::Commit commit;
  commit.entry = space.entry;
  commit.generation = space.generation;
  commit.key = key;
  commit.pin_for = &reader_.pins();
  commit.stamp = clock_.stamp();
  commit.restore_cancelled = &restoring.cancelled();
  const auto held = master_.commit(commit);
  if (!held && held.error().code == ErrorCode::kCancelled) {  // removed; perhaps there anew
    Pin pin;
    if (reader_.find(key, pin) != SharedStoreReader::Answer::kFound) return std::nullopt;
    return pin;
  }
  if (!held) {
    *why = held.error().message;
    return std::nullopt;
  }
  Pin pin = reader_.adopt(held->entry, held->generation);
  if (held->generation == space.generation) {  // else somebody else's was first, and that one lay in memory
    pin.set_source(tier.source());
    tier.count_hit();
  }
  return pin;
}

// ---- the rest ----

void Tiers::wait_removed(std::string_view key) {
  for (const auto& tier : tiers_) tier->wait_removed(key);
}

Result<void> Tiers::flush() {
  Result<void> done = {};
  for (const auto& tier : tiers_) {
    const Result<void> flushed = tier->flush();
    if (done) done = flushed;
  }
  return done;
}

void Tiers::fill_stats(StoreStats& stats) const {
  for (const auto& tier : tiers_) tier->fill_stats(stats);
}

}  // namespace nmc::store
