#include "kv/snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace nmc::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "wire structs are written as they lie in memory");

constexpr std::array<char, 8> kMagic = {'N', 'M', 'C', 'S', 'N', 'A', 'P', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kSpanMagic = 0x4e415053;  // "SPAN"
constexpr std::uint32_t kEndMagic = 0x21444e45;   // "END!"

struct WireHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = 128;
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 0;
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::array<std::uint8_t, 2> zero{};
  std::uint32_t layers_per_span = 0;
  std::array<std::uint8_t, 32> ns{};
  std::uint64_t tokens = 0;
  std::uint64_t blocks = 0;
  std::uint64_t total_bytes = 0;  // of the whole stream
  std::array<std::uint64_t, 3> reserved{};
  std::uint64_t checksum = 0;  // XXH3 of all before
};
static_assert(sizeof(WireHeader) == 128);

// A span's payload follows it; with kEndMagic it is the end, and `payload_bytes` is the number of spans.
struct WireItem {
  std::uint32_t magic = 0;
  std::uint32_t block = 0;
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_checksum = 0;
  std::uint64_t checksum = 0;  // XXH3 of all before
};
static_assert(sizeof(WireItem) == 40);

template <typename Wire>
std::uint64_t sum_of(const Wire& wire) {
  return checksum64(std::as_bytes(std::span(&wire, 1)).first(sizeof(Wire) - sizeof(std::uint64_t)));
}

std::uint64_t span_count(const SnapshotHeader& header) {
  return std::uint64_t{header.blocks()} * (header.layout.layers / header.layers_per_span);
}

std::size_t payload_bytes(const SnapshotHeader& header) { return header.layers_per_span * header.layout.span_bytes(); }

WireHeader to_wire(const SnapshotHeader& header) {
  WireHeader wire;
  wire.layers = header.layout.layers;
  wire.kv_heads = header.layout.kv_heads;
  wire.head_dim = header.layout.head_dim;
  wire.block_tokens = header.layout.block_tokens;
  wire.dtype = static_cast<std::uint8_t>(header.layout.dtype);
  wire.kind = static_cast<std::uint8_t>(header.layout.kind);
  wire.layers_per_span = header.layers_per_span;
  wire.ns = header.ns.bytes;
  wire.tokens = header.tokens;
  wire.blocks = header.blocks();
  wire.total_bytes = snapshot_bytes(header);
  wire.checksum = sum_of(wire);
  return wire;
}

}  // namespace

std::size_t snapshot_bytes(const SnapshotHeader& header) {
  return sizeof(WireHeader) + span_count(header) * (sizeof(WireItem) + payload_bytes(header)) + sizeof(WireItem);
}

// ---- encoding ----

SnapshotEncoder::SnapshotEncoder(const SnapshotHeader& header, std::span<std::byte> out) : header_(header), out_(out) {
  NMC_REQUIRE(header.layers_per_span > 0 && header.layout.layers % header.layers_per_span == 0, "layers={} a span={}",
              header.layout.layers, header.layers_per_span);
  NMC_REQUIRE(out.size() == snapshot_bytes(header), "out={} needed={}", out.size(), snapshot_bytes(header));
  const WireHeader wire = to_wire(header);
  put(std::as_bytes(std::span(&wire, 1)));
}

void SnapshotEncoder::put(std::span<const std::byte> bytes) {
  std::memcpy(out_.data() + at_, bytes.data(), bytes.size());
  at_ += bytes.size();
}

void SnapshotEncoder::span(std::uint32_t block, std::uint32_t first_layer, std::span<const std::byte> payload) {
  NMC_REQUIRE(payload.size() == payload_bytes(header_) && spans_ < span_count(header_), "payload={} spans={}",
              payload.size(), spans_);
  WireItem item{.magic = kSpanMagic,
                .block = block,
                .first_layer = first_layer,
                .layers = header_.layers_per_span,
                .payload_bytes = payload.size()};
  const std::size_t item_at = at_;
  at_ += sizeof item;
  item.payload_checksum = copy_and_checksum64(out_.subspan(at_, payload.size()), payload);
  at_ += payload.size();
  item.checksum = sum_of(item);
  std::memcpy(out_.data() + item_at, &item, sizeof item);
  ++spans_;
}

void SnapshotEncoder::finish() {
  NMC_REQUIRE(spans_ == span_count(header_), "spans={} expected={}", spans_, span_count(header_));
  WireItem end{.magic = kEndMagic, .payload_bytes = spans_};
  end.checksum = sum_of(end);
  put(std::as_bytes(std::span(&end, 1)));
}

void encode_snapshot(const SnapshotHeader& header, std::span<const std::byte* const> blocks, std::span<std::byte> out) {
  NMC_REQUIRE(blocks.size() == header.blocks(), "blocks={} expected={}", blocks.size(), header.blocks());
  SnapshotEncoder encoder(header, out);
  const std::size_t bytes = payload_bytes(header);
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    for (std::uint32_t layer = 0; layer < header.layout.layers; layer += header.layers_per_span) {
      encoder.span(block, layer, {blocks[block] + header.layout.span_offset(layer), bytes});
    }
  }
  encoder.finish();
}

// ---- decoding ----

SnapshotDecoder::SnapshotDecoder(const KvLayout& layout, const Digest& ns, std::uint64_t tokens_max, SnapshotSink& sink)
    : layout_(layout), ns_(ns), tokens_max_(tokens_max), sink_(sink) {}

Result<void> SnapshotDecoder::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Result<void> done = advance(bytes);
    if (!done) {
      state_ = State::kFailed;
      return done;
    }
  }
  return {};
}

Result<void> SnapshotDecoder::finish() {
  if (state_ == State::kDone) return {};
  if (state_ == State::kFailed) return corrupt("snapshot: refused before");
  return corrupt("snapshot: cut short, {} spans are missing",
                 state_ == State::kHeader ? "all" : std::to_string(spans_left_));
}

// Consumes at least one byte of `bytes`, or fails.
Result<void> SnapshotDecoder::advance(std::span<const std::byte>& bytes) {
  switch (state_) {
    case State::kHeader: return gather(bytes, sizeof(WireHeader)) ? read_header() : Result<void>();
    case State::kItem: return gather(bytes, sizeof(WireItem)) ? read_item() : Result<void>();
    case State::kPayload: {
      const std::size_t take = std::min(bytes.size(), payload_size_ - payload_done_);
      std::memcpy(payload_ + payload_done_, bytes.data(), take);
      payload_done_ += take;
      bytes = bytes.subspan(take);
      return payload_done_ == payload_size_ ? end_payload() : Result<void>();
    }
    case State::kDone: return corrupt("snapshot: {} bytes after its end", bytes.size());
    case State::kFailed: return corrupt("snapshot: refused before");
  }
  return internal_error("snapshot: state {}", static_cast<int>(state_));
}

// True once `wanted` bytes of a fixed-size piece are in fixed_.
bool SnapshotDecoder::gather(std::span<const std::byte>& bytes, std::size_t wanted) {
  const std::size_t take = std::min(bytes.size(), wanted - fixed_size_);
  std::memcpy(fixed_.data() + fixed_size_, bytes.data(), take);
  fixed_size_ += take;
  bytes = bytes.subspan(take);
  if (fixed_size_ < wanted) return false;
  fixed_size_ = 0;
  return true;
}

Result<void> SnapshotDecoder::read_header() {
  WireHeader wire;
  std::memcpy(&wire, fixed_.data(), sizeof wire);
  if (wire.magic != kMagic) return corrupt("snapshot: doesn't begin like one");
  if (wire.version != kVersion) return version_mismatch("snapshot: version {}, expected {}", wire.version, kVersion);
  if (wire.checksum != sum_of(wire)) return corrupt("snapshot: the header's checksum doesn't hold");

  header_.layout = {.layers = wire.layers,
                    .kv_heads = wire.kv_heads,
                    .head_dim = wire.head_dim,
                    .block_tokens = wire.block_tokens,
                    .dtype = static_cast<Dtype>(wire.dtype),
                    .kind = static_cast<LayoutKind>(wire.kind)};
  header_.ns.bytes = wire.ns;
  header_.tokens = wire.tokens;
  header_.layers_per_span = wire.layers_per_span;
  if (header_.layout != layout_) {
    return version_mismatch("snapshot: layout of {}, expected {}", header_.layout.to_string(), layout_.to_string());
  }
  if (header_.ns != ns_) return version_mismatch("snapshot: namespace {}, expected {}", header_.ns.hex(), ns_.hex());
  if (wire.tokens == 0 || wire.tokens > tokens_max_) {
    return corrupt("snapshot: {} tokens, expected 1 to {}", wire.tokens, tokens_max_);
  }
  if (wire.layers_per_span == 0 || wire.layers % wire.layers_per_span != 0) {
    return corrupt("snapshot: {} layers a span, expected a divisor of {}", wire.layers_per_span, wire.layers);
  }
  // What is left follows from the fields above, so the whole header must be what we would have written.
  const WireHeader expected = to_wire(header_);
  if (std::memcmp(&wire, &expected, sizeof wire) != 0)
    return corrupt("snapshot: the header's sizes contradict each other");

  spans_left_ = span_count(header_);
  seen_.assign(spans_left_, false);
  payload_size_ = payload_bytes(header_);
  state_ = State::kItem;
  return sink_.on_header(header_);
}

Result<void> SnapshotDecoder::read_item() {
  WireItem item;
  std::memcpy(&item, fixed_.data(), sizeof item);
  if (item.checksum != sum_of(item)) return corrupt("snapshot: a span's header fails its checksum");
  if (item.magic == kEndMagic) {
    if (spans_left_ != 0) return corrupt("snapshot: ends with {} spans missing", spans_left_);
    const WireItem expected{.magic = kEndMagic, .payload_bytes = seen_.size(), .checksum = item.checksum};
    if (std::memcmp(&item, &expected, sizeof item) != 0)
      return corrupt("snapshot: its end names {} spans", item.payload_bytes);
    state_ = State::kDone;
    return {};
  }
  if (item.magic != kSpanMagic) return corrupt("snapshot: neither a span nor the end");
  bool fits = item.block < header_.blocks() && item.layers == header_.layers_per_span &&
              item.payload_bytes == payload_size_ && item.first_layer % item.layers == 0;
#if !defined(NMC_PLANT_SNAPSHOT)  // left out on purpose in a build that shows what fuzzing finds
  fits = fits && item.first_layer < header_.layout.layers;
#endif
  if (!fits) {
    return corrupt("snapshot: span of block {}, layers {}+{}, {} bytes, in a snapshot of {} blocks, {} layers",
                   item.block, item.first_layer, item.layers, item.payload_bytes, header_.blocks(),
                   header_.layout.layers);
  }
  const std::size_t place =
      std::size_t{item.block} * (header_.layout.layers / item.layers) + item.first_layer / item.layers;
  if (seen_[place]) return corrupt("snapshot: block {}, layer {} comes twice", item.block, item.first_layer);
  seen_[place] = true;

  block_ = item.block;
  first_layer_ = item.first_layer;
  checksum_ = item.payload_checksum;
  payload_ = sink_.block(block_) + layout_.span_offset(first_layer_);
  payload_done_ = 0;
  state_ = State::kPayload;
  return {};
}

Result<void> SnapshotDecoder::end_payload() {
  // The bytes are still in the cache: a span is at most a block.
  if (checksum64(std::span<const std::byte>(payload_, payload_size_)) != checksum_) {
    return corrupt("snapshot: block {}, layer {} fails its checksum", block_, first_layer_);
  }
  --spans_left_;
  state_ = State::kItem;
  sink_.on_span(block_, first_layer_, header_.layers_per_span);
  return {};
}

}  // namespace nmc::kv
