#include "net/frame.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <string>

namespace nmc::net {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is the bytes on the wire");

struct WireHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t op;
  std::uint32_t status;
  std::uint32_t body_bytes;
  std::uint64_t request_id;
  std::uint64_t payload_bytes;
};
static_assert(sizeof(WireHeader) == kFrameHeaderBytes);

constexpr std::uint32_t kMagic = 0x57434d4e;  // "NMCW"

std::string quoted(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 16))) {
    const auto c = static_cast<unsigned char>(byte);
    text += c < 0x80 && std::isprint(c) ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return text;
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  const WireHeader wire{.magic = kMagic,
                        .version = kProtocolVersion,
                        .op = header.op,
                        .status = static_cast<std::uint32_t>(header.status),
                        .body_bytes = header.body_bytes,
                        .request_id = header.request_id,
                        .payload_bytes = header.payload_bytes};
  return std::bit_cast<FrameHeaderBytes>(wire);
}

Result<void> check_frame_start(ByteSpan start) {
  const std::size_t known = std::min(start.size(), sizeof kMagic);
  if (known > 0 && std::memcmp(start.data(), &kMagic, known) != 0) {
    return corrupt("not a message of nano-mooncake: it begins with \"{}\"", quoted(start));
  }
  return {};
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                        const FrameLimits& limits) {
  NMC_RETURN_IF_ERROR(check_frame_start(bytes));
  WireHeader wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.version != kProtocolVersion) {
    return version_mismatch("the peer speaks version {} of the protocol, this is version {}", wire.version,
                            kProtocolVersion);
  }
  if (wire.status > static_cast<std::uint32_t>(FrameStatus::kError)) {
    return corrupt("message with status {}, expected 0 or 1", wire.status);
  }
  if (wire.body_bytes > limits.body_bytes_max) {
    return corrupt("message with a body of {} bytes, expected at most {}", wire.body_bytes, limits.body_bytes_max);
  }
  if (wire.payload_bytes > limits.payload_bytes_max) {
    return corrupt("message with a payload of {} bytes, expected at most {}", wire.payload_bytes,
                   limits.payload_bytes_max);
  }
  const auto status = static_cast<FrameStatus>(wire.status);
  if (status == FrameStatus::kError && wire.payload_bytes != 0) {
    return corrupt("error message with a payload of {} bytes, expected none", wire.payload_bytes);
  }
  return FrameHeader{.op = wire.op,
                     .status = status,
                     .body_bytes = wire.body_bytes,
                     .request_id = wire.request_id,
                     .payload_bytes = wire.payload_bytes};
}

std::uint64_t total_bytes(std::span<const ByteSpan> spans) {
  std::uint64_t total = 0;
  for (const ByteSpan span : spans) total += span.size();
  return total;
}

Result<void> check_datagram_size(ByteSpan body, std::span<const ByteSpan> payload) {
  const std::uint64_t total = kFrameHeaderBytes + body.size() + total_bytes(payload);
  if (total <= kDatagramBytesMax) return {};
  return invalid_argument("message of {} bytes, a Unix socket takes at most {} at once", total, kDatagramBytesMax);
}

Result<Frame> split_datagram(ByteSpan datagram) {
  NMC_RETURN_IF_ERROR(check_frame_start(datagram));
  if (datagram.size() < kFrameHeaderBytes) {
    return corrupt("message of {} bytes, expected at least {}", datagram.size(), kFrameHeaderBytes);
  }
  constexpr FrameLimits kLimits{.body_bytes_max = kDatagramBytesMax, .payload_bytes_max = kDatagramBytesMax};
  NMC_ASSIGN_OR_RETURN(const FrameHeader header, decode_frame_header(datagram.first<kFrameHeaderBytes>(), kLimits));
  const ByteSpan rest = datagram.subspan(kFrameHeaderBytes);
  if (header.body_bytes + header.payload_bytes != rest.size()) {
    return corrupt("message of {} bytes whose header tells of {} + {} + {}", datagram.size(), kFrameHeaderBytes,
                   header.body_bytes, header.payload_bytes);
  }
  return Frame{.header = header, .body = rest.first(header.body_bytes), .payload = rest.subspan(header.body_bytes)};
}

}  // namespace nmc::net
