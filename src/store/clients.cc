#include "store/clients.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {

Result<void> Clients::reserve(std::uint32_t entries) {
  for (const auto& client : clients_) NMC_RETURN_IF_ERROR(client->table.reserve(entries));
  entries_ready_ = entries;
  return {};
}

Result<const PinTable*> Clients::add(Kind kind) {
  const std::string file = file_name(next_client_);
  auto table = PinTable::create(files_, file, next_client_, entry_count_, boot_id_);
  if (table) {
    if (auto reserved = table->reserve(entries_ready_); !reserved) table = Failure(std::move(reserved).error());
  }
  if (!table) {
    files_.remove(file);
    return Failure(std::move(table).error());
  }
  return keep(*std::move(table), kind);
}

const PinTable* Clients::adopt(PinTable table) { return keep(std::move(table), Kind::kUser); }

const PinTable* Clients::keep(PinTable table, Kind kind) {
  next_client_ = std::max(next_client_, table.client() + 1);
  clients_.push_back(std::make_unique<Client>(Client{std::move(table), kind}));
  bases_.push_back(&clients_.back()->table.word(0));
  return &clients_.back()->table;
}

const PinTable* Clients::find(std::uint32_t client) const {
  for (const auto& known : clients_) {
    if (known->table.client() == client) return &known->table;
  }
  return nullptr;
}

void Clients::drop(std::uint32_t client) {
  const auto it = std::find_if(clients_.begin(), clients_.end(),
                               [&](const auto& known) { return known->table.client() == client; });
  NMC_REQUIRE(it != clients_.end(), "client={}", client);
  past_hits_ += (*it)->table.hits();
  past_misses_ += (*it)->table.misses();
  files_.remove(file_name(client));
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
