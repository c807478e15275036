#include "store/clients.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {

Result<const PinTable*> Clients::add(Kind kind) {
  NMC_ASSIGN_OR_RETURN(PinTable table, PinTable::create(next_client_, entry_count_, boot_id_));
  ++next_client_;
  clients_.push_back(std::make_unique<Client>(Client{std::move(table), kind}));
  bases_.push_back(&clients_.back()->table.word(0));
  return &clients_.back()->table;
}

void Clients::drop(std::uint32_t client) {
  const auto it = std::find_if(clients_.begin(), clients_.end(),
                               [&](const auto& known) { return known->table.client() == client; });
  NMC_REQUIRE(it != clients_.end(), "client={}", client);
  past_hits_ += (*it)->table.header().hits.load(std::memory_order_relaxed);
  past_misses_ += (*it)->table.header().misses.load(std::memory_order_relaxed);
  bases_.erase(bases_.begin() + (it - clients_.begin()));
  clients_.erase(it);
}

std::uint64_t Clients::pins(std::uint32_t entry, Kind kind) const {
  std::uint64_t pins = 0;
  for (const auto& client : clients_) {
    if (client->kind == kind) pins += pin_count_of(client->table.word(entry).load(std::memory_order_relaxed));
  }
  return pins;
}

std::uint64_t Clients::user_pins(std::uint32_t entry) const { return pins(entry, Kind::kUser); }
std::uint64_t Clients::lender_pins(std::uint32_t entry) const { return pins(entry, Kind::kLender); }

std::uint64_t Clients::newest_touch(std::uint32_t entry, std::uint64_t generation, std::uint64_t now) const {
  std::uint64_t newest = 0;
  for (const auto& client : clients_) {
    const std::uint64_t word = client->table.word(entry).load(std::memory_order_relaxed);
    if (client->kind != Kind::kUser || touch_of(word) == 0 || tag_of(word) != tag_for_generation(generation)) continue;
    newest = std::max(newest, TouchClock::widen(touch_of(word), now));
  }
  return newest;
}

}  // namespace nmc::store
