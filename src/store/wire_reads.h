// Reads of a client that doesn't share memory with its master: objects and parts of objects, over one connection or
// several at once. Internal to the client.
//
// Small objects come together, a message for many. Large ones, and large batches, are cut into parts of about equal
// size that come over a few connections, each received by a thread of its own, straight into the caller's memory. The
// parts of one object name its generation, so that they can't be of two values; where it was replaced meanwhile, it is
// read anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "store/client.h"
#include "store/master_link.h"

namespace nmc::store {

using Spans = std::span<const std::span<std::byte>>;

// What is wanted of one object: all of it if it has at most `bytes`, or exactly so many from `offset`.
struct WireRead {
  std::string_view key;
  std::uint64_t bytes = 0;
  bool whole = true;
  std::uint64_t offset = 0;
};

// Where read number `read`, of which `bytes` come, is to go: spans that together have room for them, whose first bytes
// are filled, and which stay until the reading is done. Called before any byte comes, and again if the object has to be
// read anew; at once on several threads, for different reads. Its error becomes that of the message, so that others of
// the batch may share it.
using PlaceRead = std::function<Result<Spans>(std::size_t read, std::uint64_t bytes)>;

// An outcome each: the bytes that came, or a code. What a failed read was to be placed in may hold anything.
void read_over_wire(MasterLink& link, std::span<const WireRead> reads, const PlaceRead& place,
                    std::span<Outcome> outcomes);

// Calls work(0) ... work(count - 1) at once, each on a thread of its own but for the first, and waits for all.
void in_lanes(std::size_t count, const std::function<void(std::size_t)>& work);
// How many lanes are worth it for so many bytes.
std::size_t lanes_for(std::uint64_t bytes);
// Items, of so many bytes each, for each lane: in order, so that what stands early comes early, with about as many
// bytes each. No lane is empty.
std::vector<std::vector<std::size_t>> deal_to_lanes(std::span<const std::uint64_t> bytes, std::size_t lanes);

}  // namespace nmc::store
