#include "model/piece_cache.h"

#include <utility>

namespace nmc::model {

void PieceCache::grow() {
  std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(entries_.size() * 4));
  for (const Entry& entry : old) {
    if (entry.hash != 0) entries_[place_of(key_of(entry)).slot] = entry;
  }
}

}  // namespace nmc::model
