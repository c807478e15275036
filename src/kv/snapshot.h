// A sequence's KV as one stream of bytes, for shared memory, wire and disk: a header, spans (whole layers of one block,
// each with its checksum) in any order, an end. A receiver can place layer by layer while the sender still computes.
// Byte layout: docs/formats.md, "Snapshot".
//
// A snapshot of another version, layout or namespace is kVersionMismatch with both values (a miss with its reason for
// whoever asked); anything damaged, cut, missing or twice is kCorrupt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kv/layout.h"

namespace nmc::kv {

struct SnapshotHeader {
  KvLayout layout;
  Digest ns;
  std::uint64_t tokens = 0;           // whose KV is inside; layout.blocks_for(tokens) blocks follow
  std::uint32_t layers_per_span = 0;  // 1 .. layout.layers, and a divisor of it

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(layout.blocks_for(tokens)); }
  bool operator==(const SnapshotHeader&) const = default;
};

// Exact size of the encoded stream.
std::size_t snapshot_bytes(const SnapshotHeader& header);

// Writes the stream piece by piece into memory of snapshot_bytes(header) bytes, which it borrows. Spans may come in any
// order, each (block, first layer) once. Not thread-safe.
class SnapshotEncoder {
 public:
  SnapshotEncoder(const SnapshotHeader& header, std::span<std::byte> out);

  // `payload` is layers first_layer .. first_layer + layers_per_span - 1 of block `block`.
  void span(std::uint32_t block, std::uint32_t first_layer, std::span<const std::byte> payload);
  // All spans are written.
  void finish();
  // How much of `out` can be sent already.
  std::size_t written() const { return at_; }

 private:
  void put(std::span<const std::byte> bytes);

  SnapshotHeader header_;
  std::span<std::byte> out_;
  std::size_t at_ = 0;
  std::uint64_t spans_ = 0;
};

// The whole stream at once: blocks[i] is the address of block i (layout.block_bytes() bytes).
void encode_snapshot(const SnapshotHeader& header, std::span<const std::byte* const> blocks, std::span<std::byte> out);

// Where a decoder puts things. Calls come from inside feed().
class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  // The header was read and fits. An error stops the decoder and is passed on.
  virtual Result<void> on_header(const SnapshotHeader& header) = 0;
  // Memory of that block, layout.block_bytes() bytes; asked for once a span, valid until the decoder is done.
  virtual std::byte* block(std::uint32_t index) = 0;
  // Those layers of the block are in place and their checksum held.
  virtual void on_span(std::uint32_t, std::uint32_t /*first_layer*/, std::uint32_t /*layers*/) {}
};

// Takes the stream in pieces of any size and writes payloads straight to where the sink wants them. Never allocates by
// what the stream claims before it was checked. After an error it takes nothing more. Not thread-safe.
class SnapshotDecoder {
 public:
  // Refuses what isn't `layout` and `ns`, or has more than `tokens_max` tokens.
  SnapshotDecoder(const KvLayout& layout, const Digest& ns, std::uint64_t tokens_max, SnapshotSink& sink);

  Result<void> feed(std::span<const std::byte> bytes);
  // All of the stream was fed: ok only if nothing is missing.
  Result<void> finish();

 private:
  enum class State { kHeader, kItem, kPayload, kDone, kFailed };

  Result<void> advance(std::span<const std::byte>& bytes);
  bool gather(std::span<const std::byte>& bytes, std::size_t wanted);
  Result<void> read_header();
  Result<void> read_item();
  Result<void> end_payload();

  const KvLayout layout_;
  const Digest ns_;
  const std::uint64_t tokens_max_;
  SnapshotSink& sink_;

  State state_ = State::kHeader;
  SnapshotHeader header_;
  std::array<std::byte, 128> fixed_;  // a header or item being gathered
  std::size_t fixed_size_ = 0;
  std::vector<bool> seen_;  // by block and group of layers
  std::uint64_t spans_left_ = 0;
  std::uint32_t block_ = 0;  // of the payload under way
  std::uint32_t first_layer_ = 0;
  std::uint64_t checksum_ = 0;
  std::byte* payload_ = nullptr;
  std::size_t payload_size_ = 0;
  std::size_t payload_done_ = 0;
};

}  // namespace nmc::kv
