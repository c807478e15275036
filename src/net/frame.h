// What every message between our own processes looks like, over a Unix socket or TCP:
//
//   frame  = header[32] body[body_bytes] payload[payload_bytes]
//   header = magic u32 ("NMCW") | version u16 | op u16 | status u32 | body_bytes u32 | request_id u64 | payload_bytes
//   u64
//
// All numbers are little-endian. The body holds the fields of a message (net/body.h), the payload its bulk bytes, which
// go straight from and to their owner's memory. Over a Unix socket a frame is one datagram; over TCP frames follow each
// other. A reply has the op and the request_id of its request; with status kError its body is an error and nothing
// follows. Magic and version keep their places in all versions, so that two versions can tell each other apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace nmc::net {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

constexpr std::uint16_t kProtocolVersion = 1;
constexpr std::size_t kFrameMagicBytes = 4;
constexpr std::size_t kFrameHeaderBytes = 32;
// A whole frame on a Unix socket. Below the smallest send buffer that Linux gives by default.
constexpr std::size_t kDatagramBytesMax = 128 << 10;
constexpr std::size_t kDatagramFdsMax = 16;
// Ops from here on are the handshake's.
constexpr std::uint16_t kReservedOps = 0xff00;

enum class FrameStatus : std::uint32_t { kOk = 0, kError = 1 };

struct FrameHeader {
  std::uint16_t op = 0;
  FrameStatus status = FrameStatus::kOk;
  std::uint32_t body_bytes = 0;
  std::uint64_t request_id = 0;
  std::uint64_t payload_bytes = 0;

  bool operator==(const FrameHeader&) const = default;
};

// What a receiver takes. A header that claims more is refused before anything is allocated.
struct FrameLimits {
  std::uint32_t body_bytes_max = 16 << 20;
  std::uint64_t payload_bytes_max = std::uint64_t{1} << 40;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;
FrameHeaderBytes encode_frame_header(const FrameHeader& header);

// kCorrupt: not a frame of ours, or one beyond `limits`. kVersionMismatch names both versions.
Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, const FrameLimits& limits);

// For the first bytes of a peer that may never send a whole header: kCorrupt, quoting `start`, if no frame begins so.
Result<void> check_frame_start(ByteSpan start);

struct Frame {
  FrameHeader header;
  ByteSpan body;
  ByteSpan payload;  // as far as it came along: whole in a datagram
};

// kInvalidArgument: a message with this body and payload is more than a datagram takes.
Result<void> check_datagram_size(ByteSpan body, std::span<const ByteSpan> payload);
std::uint64_t total_bytes(std::span<const ByteSpan> spans);

// One datagram taken apart; the spans point into it. Its size must be what its header says.
Result<Frame> split_datagram(ByteSpan datagram);

}  // namespace nmc::net
