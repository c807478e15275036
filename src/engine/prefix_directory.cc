#include "engine/prefix_directory.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::engine {
namespace {

std::uint64_t bit_of(std::size_t worker) {
  NMC_REQUIRE(worker < PrefixDirectory::kWorkersMax, "worker={}", worker);
  return std::uint64_t{1} << worker;
}

}  // namespace

PrefixDirectory::PrefixDirectory(std::size_t entries_max) : entries_max_(entries_max) {
  NMC_REQUIRE(entries_max > 0, "a directory of no entries");
}

void PrefixDirectory::note(std::span<const kv::PrefixKey> keys, std::size_t worker) {
  const std::uint64_t bit = bit_of(worker);
  // Of a chain longer than the directory only the beginning would be left.
  keys = keys.first(std::min(keys.size(), entries_max_));
  // First what is known already, so that the new blocks don't push it out, and with it what it says of other workers.
  for (const kv::PrefixKey& key : keys) {
    if (const auto known = entries_.find(key); known != entries_.end()) move_to_front(known->second);
  }
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (const auto known = entries_.find(*key); known != entries_.end()) {
      known->second->workers |= bit;
      move_to_front(known->second);
      continue;
    }
    if (entries_.size() == entries_max_) drop_oldest();
    order_.push_front({*key, bit});
    entries_.emplace(*key, order_.begin());
  }
}

void PrefixDirectory::forget(std::size_t worker) {
  const std::uint64_t bit = bit_of(worker);
  for (auto entry = order_.begin(); entry != order_.end();) {
    entry->workers &= ~bit;
    if (entry->workers != 0) {
      ++entry;
      continue;
    }
    entries_.erase(entry->key);
    entry = order_.erase(entry);
  }
}

std::size_t PrefixDirectory::matched_blocks(std::span<const kv::PrefixKey> keys, std::size_t worker) const {
  const std::uint64_t bit = bit_of(worker);
  const auto end_of_run = std::find_if(keys.begin(), keys.end(), [&](const kv::PrefixKey& key) {
    const auto known = entries_.find(key);
    return known == entries_.end() || (known->second->workers & bit) == 0;
  });
  return static_cast<std::size_t>(end_of_run - keys.begin());
}

void PrefixDirectory::move_to_front(Order::iterator entry) { order_.splice(order_.begin(), order_, entry); }

void PrefixDirectory::drop_oldest() {
  entries_.erase(order_.back().key);
  order_.pop_back();
}

}  // namespace nmc::engine
