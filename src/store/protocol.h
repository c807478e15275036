// The messages between a node's master and its clients, as bodies of net/frame.h. The same operations go over the Unix
// socket and over TCP, but for those that pass file descriptors. Layouts: docs/formats.md, "Store protocol".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "net/body.h"
#include "store/client.h"
#include "store/index.h"

namespace nmc::store {

enum class Op : std::uint16_t {
  kWhere = 1,       // TCP: is the master on this host? -> boot id, path of its socket
  kJoin,            // Unix: a pin table of one's own -> client, boot id; fds: index, pin table
  kAttach,          // Unix: another connection of a client, or one to a new master of the same store
  kReady,           // Unix: the pin table is locked: from here on the lock is the sign of life
  kLeave,           // the client is gone for good
  kSegmentFile,     // Unix: number -> fd
  kMount,           // bytes, name -> number
  kUnmount,         // number
  kReserve,         // class and sizes -> places, to be filled through shared memory
  kCommit,          // places, filled, with their keys -> codes
  kAbort,           // places
  kPut,             // keys and sizes; the bytes as payload -> codes
  kExists,          // keys -> 1, 0
  kSizes,           // keys -> sizes
  kRead,            // keys and ranges -> outcomes, sizes, generations; the bytes as payload
  kRemove,          // keys -> codes
  kRemoveMatching,  // pattern -> count
  kReplicas,        // key -> places by segment name
  kPing,
  kStats,    // -> counters and gauges
  kRestore,  // keys of what isn't in memory -> 1, 0: whether it is now
};

// How long the places of a kReserve stay the client's.
enum class Tenure : std::uint8_t {
  kPut = 0,   // for as long as its pin table says that a put is at work
  kHeld = 1,  // for as long as it has them pinned; blocks are all or none
};

// The most items in one message.
inline constexpr std::uint32_t kBatchItemsMax = 65536;
inline constexpr std::size_t kCopiesMax = 16;  // of one object
// Keys that remove_matching and remove_all of users leave alone.
inline constexpr std::string_view kEngineKeyPrefix = "nmc/";

// What a call with this key comes to, if the key can't be one. Asked on both sides: neither believes the other.
std::optional<StoreCode> wrong_key(std::string_view key);

// Space that a client fills.
struct PlaceOnWire {
  std::uint32_t entry = 0;
  std::uint64_t generation = 0;
  std::uint16_t segment = 0;
  std::uint64_t offset = 0;
};
inline constexpr std::size_t kPlaceBytes = 22;

inline void put_place(net::BodyWriter& writer, const PlaceOnWire& place) {
  writer.put_u32(place.entry).put_u64(place.generation).put_u16(place.segment).put_u64(place.offset);
}
inline PlaceOnWire get_place(net::BodyReader& reader) {
  PlaceOnWire place;
  place.entry = reader.get_u32("entry");
  place.generation = reader.get_u64("generation");
  place.segment = reader.get_u16("segment");
  place.offset = reader.get_u64("offset");
  return place;
}

void put_stats(net::BodyWriter& writer, const StoreStats& stats);
StoreStats get_stats(net::BodyReader& reader);

void put_options(net::BodyWriter& writer, const PutOptions& options);
PutOptions get_options(net::BodyReader& reader);

// Of kRead: this many bytes from `offset`, or all of an object that has at most this many.
struct ReadOnWire {
  std::string_view key;
  bool whole = true;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t generation = 0;  // not 0: only of the object that has it, any other is not found
};
void put_read(net::BodyWriter& writer, const ReadOnWire& read);
ReadOnWire get_read(net::BodyReader& reader);
inline constexpr std::size_t kReadBytesMin = 29;

// What the reply says of each: the bytes that come or a code; and, also when it was too large, what the object is.
struct ReadAnswer {
  Outcome outcome = 0;
  std::uint64_t bytes = 0, generation = 0;  // 0: there is none
};
void put_answer(net::BodyWriter& writer, const ReadAnswer& answer);
ReadAnswer get_answer(net::BodyReader& reader);

}  // namespace nmc::store
