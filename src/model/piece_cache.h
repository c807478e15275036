// What pieces of text were encoded to before: text repeats itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace nmc::model {

// Short pieces and where their ids lie. An entry is never changed or dropped, so memory is in proportion to the
// distinct pieces put in. Not thread-safe.
class PieceCache {
 public:
  static constexpr std::size_t kPieceBytesMax = 64;  // longer ones seldom come again

  struct Range {  // of ids, in a vector of the caller's
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };

  PieceCache() : entries_(kEntriesAtFirst) {}

  // Where `piece` is, or where it would be put; valid until the next put().
  struct Place {
    std::uint64_t hash = 0;
    std::size_t slot = 0;
  };
  Place place_of(std::string_view piece) const {
    const std::uint64_t hash = checksum64(piece) | 1;  // 0 marks a free slot
    std::size_t slot = hash >> 20 & (entries_.size() - 1);
    while (entries_[slot].hash != 0 && !(entries_[slot].hash == hash && key_of(entries_[slot]) == piece)) {
      slot = (slot + 1) & (entries_.size() - 1);
    }
    return {hash, slot};
  }
  std::optional<Range> at(const Place& place) const {
    const Entry& entry = entries_[place.slot];
    return entry.hash == 0 ? std::nullopt : std::optional(entry.ids);
  }
  void put(const Place& place, std::string_view piece, Range ids) {
    entries_[place.slot] = {place.hash, static_cast<std::uint32_t>(keys_.size()),
                            static_cast<std::uint32_t>(piece.size()), ids};
    keys_ += piece;
    if (++count_ * 2 > entries_.size()) grow();
  }

 private:
  static constexpr std::size_t kEntriesAtFirst = 256;  // a power of two, as ever after

  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t key_begin = 0;  // in keys_
    std::uint32_t key_size = 0;
    Range ids;
  };

  std::string_view key_of(const Entry& entry) const {
    return std::string_view(keys_).substr(entry.key_begin, entry.key_size);
  }
  void grow();

  std::vector<Entry> entries_;  // open addressing, at most half full
  std::string keys_;
  std::size_t count_ = 0;
};

}  // namespace nmc::model
