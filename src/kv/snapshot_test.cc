#include "kv/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/rng.h"

namespace nmc::kv {
namespace {

using ::testing::HasSubstr;

constexpr KvLayout kLayout{.layers = 4, .kv_heads = 1, .head_dim = 2, .block_tokens = 4, .dtype = Dtype::kBf16};
constexpr std::uint64_t kTokens = 10;  // three blocks, the last half full
constexpr std::uint64_t kTokensMax = 16;
constexpr std::size_t kHeaderBytes = 128, kItemBytes = 40;

using Bytes = std::vector<std::byte>;

Digest name_space(std::uint8_t first = 1) {
  Digest ns;
  for (std::size_t i = 0; i < ns.bytes.size(); ++i) ns.bytes[i] = static_cast<std::uint8_t>(first + i);
  return ns;
}

SnapshotHeader header_of(std::uint32_t layers_per_span = 2) {
  return {kLayout, name_space(), kTokens, layers_per_span};
}

std::vector<Bytes> random_blocks(std::uint64_t seed = 1) {
  Rng rng(seed);
  std::vector<Bytes> blocks(kLayout.blocks_for(kTokens), Bytes(kLayout.block_bytes()));
  for (Bytes& block : blocks) {
    for (std::byte& byte : block) byte = static_cast<std::byte>(rng.next());
  }
  return blocks;
}

Bytes encode(const SnapshotHeader& header, const std::vector<Bytes>& blocks) {
  std::vector<const std::byte*> addresses;
  for (const Bytes& block : blocks) addresses.push_back(block.data());
  Bytes out(snapshot_bytes(header));
  encode_snapshot(header, addresses, out);
  return out;
}

// Blocks of its own with a fence around each, and a record of what it was told.
class Receiver final : public SnapshotSink {
 public:
  Result<void> on_header(const SnapshotHeader& header) override {
    if (refuse) return resource_exhausted("no blocks left");
    headers.push_back(header);
    memory.assign(header.blocks(), Bytes(header.layout.block_bytes() + 2 * kFence, std::byte{0xee}));
    return {};
  }
  std::byte* block(std::uint32_t index) override { return memory.at(index).data() + kFence; }
  void on_span(std::uint32_t block, std::uint32_t first_layer, std::uint32_t layers) override {
    spans.emplace_back(block, first_layer);
    layers_placed += layers;
  }

  std::vector<Bytes> blocks() const {
    std::vector<Bytes> result;
    for (const Bytes& block : memory) result.emplace_back(block.begin() + kFence, block.end() - kFence);
    return result;
  }
  bool fences_hold() const {
    return std::all_of(memory.begin(), memory.end(), [](const Bytes& block) {
      const auto is_fence = [](std::byte byte) { return byte == std::byte{0xee}; };
      return std::all_of(block.begin(), block.begin() + kFence, is_fence) &&
             std::all_of(block.end() - kFence, block.end(), is_fence);
    });
  }

  static constexpr std::ptrdiff_t kFence = 16;
  bool refuse = false;
  std::vector<SnapshotHeader> headers;
  std::vector<Bytes> memory;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans;
  std::uint32_t layers_placed = 0;
};

// Feeds `stream` in pieces of `piece` bytes and finishes; the first error, if any.
Result<void> decode(std::span<const std::byte> stream, Receiver& receiver, std::size_t piece = 1 << 20,
                    const KvLayout& layout = kLayout, const Digest& ns = name_space()) {
  SnapshotDecoder decoder(layout, ns, kTokensMax, receiver);
  while (!stream.empty()) {
    const std::size_t size = std::min(piece, stream.size());
    NMC_RETURN_IF_ERROR(decoder.feed(stream.first(size)));
    stream = stream.subspan(size);
  }
  return decoder.finish();
}

Error error_of(std::span<const std::byte> stream, const KvLayout& layout = kLayout, const Digest& ns = name_space()) {
  Receiver receiver;
  const auto done = decode(stream, receiver, 1 << 20, layout, ns);
  EXPECT_TRUE(receiver.fences_hold());
  return done ? Error{ErrorCode::kInternal, "decoded"} : done.error();
}

template <typename Value>
void put(Bytes& bytes, std::size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
// Sets a field of the header, or of the item at `item`, and mends the checksum over it.
template <typename Value>
Bytes with_header_field(Bytes stream, std::size_t at, Value value) {
  put(stream, at, value);
  put(stream, kHeaderBytes - 8, checksum64(std::span<const std::byte>(stream).first(kHeaderBytes - 8)));
  return stream;
}
template <typename Value>
Bytes with_item_field(Bytes stream, std::size_t item, std::size_t at, Value value) {
  put(stream, item + at, value);
  put(stream, item + kItemBytes - 8, checksum64(std::span<const std::byte>(stream).subspan(item, kItemBytes - 8)));
  return stream;
}
std::size_t item_at(std::size_t index, std::uint32_t layers_per_span = 2) {
  return kHeaderBytes + index * (kItemBytes + layers_per_span * kLayout.span_bytes());
}

TEST(Snapshot, ComesBackWholeAndInPiecesOfAnySize) {
  const auto blocks = random_blocks();
  for (const std::uint32_t layers_per_span : {1u, 2u, 4u}) {
    const SnapshotHeader header = header_of(layers_per_span);
    const Bytes stream = encode(header, blocks);
    for (std::size_t piece = 1; piece <= stream.size(); piece = piece < 48 ? piece + 1 : piece * 2 + 1) {
      SCOPED_TRACE(fmt::format("{} layers a span, pieces of {}", layers_per_span, piece));
      Receiver receiver;
      const auto done = decode(stream, receiver, piece);
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_EQ(receiver.headers, std::vector{header});
      EXPECT_EQ(receiver.blocks(), blocks);
      EXPECT_TRUE(receiver.fences_hold());
      EXPECT_EQ(receiver.spans.size(), 3 * kLayout.layers / layers_per_span);
      EXPECT_EQ(receiver.layers_placed, 3 * kLayout.layers);
    }
  }
}

TEST(Snapshot, SizeIsExact) {
  // Header, and for each of the spans an item and its layers, and an end.
  EXPECT_EQ(snapshot_bytes(header_of(2)), 128 + 3 * 2 * (40 + 2 * kLayout.span_bytes()) + 40);
  EXPECT_EQ(snapshot_bytes(header_of(4)), 128 + 3 * 1 * (40 + 4 * kLayout.span_bytes()) + 40);
}

TEST(Snapshot, SpansMayComeInAnyOrderAndArriveBeforeTheNextIsWritten) {
  const auto blocks = random_blocks();
  const SnapshotHeader header = header_of(2);
  Bytes stream(snapshot_bytes(header));
  SnapshotEncoder encoder(header, stream);
  Receiver receiver;
  SnapshotDecoder decoder(kLayout, name_space(), kTokensMax, receiver);
  std::size_t sent = 0;
  const auto send = [&] {
    const auto ready = std::span<const std::byte>(stream).subspan(sent, encoder.written() - sent);
    sent = encoder.written();
    return decoder.feed(ready);
  };
  // Layer by layer over all blocks, as prefill computes them, the last block first.
  std::size_t placed = 0;
  for (std::uint32_t layer = 0; layer < kLayout.layers; layer += 2) {
    for (std::uint32_t block = 3; block-- > 0;) {
      encoder.span(block, layer,
                   std::span(blocks[block]).subspan(kLayout.span_offset(layer), 2 * kLayout.span_bytes()));
      ASSERT_TRUE(send());
      ASSERT_EQ(receiver.spans.size(), ++placed);
      EXPECT_EQ(receiver.spans.back(), std::pair(block, layer));
      EXPECT_FALSE(decoder.finish()) << "not done before the end";
    }
  }
  encoder.finish();
  ASSERT_TRUE(send());
  EXPECT_TRUE(decoder.finish());
  EXPECT_EQ(sent, stream.size());
  EXPECT_EQ(receiver.blocks(), blocks);
}

TEST(Snapshot, EveryFlippedBitIsFound) {
  const Bytes stream = encode(header_of(2), random_blocks());
  for (std::size_t bit = 0; bit < stream.size() * 8; ++bit) {
    Bytes damaged = stream;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const Error error = error_of(damaged);
    const bool version = bit / 8 >= 8 && bit / 8 < 12;
    ASSERT_EQ(error.code, version ? ErrorCode::kVersionMismatch : ErrorCode::kCorrupt)
        << "bit " << bit << ": " << error.message;
  }
}

TEST(Snapshot, ACutStreamIsAnErrorWhereverItIsCut) {
  const Bytes stream = encode(header_of(2), random_blocks());
  for (std::size_t size = 0; size < stream.size(); ++size) {
    const Error error = error_of(std::span(stream).first(size));
    ASSERT_EQ(error.code, ErrorCode::kCorrupt) << size;
    ASSERT_THAT(error.message, HasSubstr("cut short")) << size;
  }
}

TEST(Snapshot, BytesBehindTheEndAreAnError) {
  Bytes stream = encode(header_of(2), random_blocks());
  stream.push_back(std::byte{0});
  EXPECT_THAT(error_of(stream).message, HasSubstr("after its end"));
}

TEST(Snapshot, AnotherVersionLayoutOrNamespaceIsAMismatchThatNamesBoth) {
  const Bytes stream = encode(header_of(2), random_blocks());
  const Error version = error_of(with_header_field(stream, 8, std::uint32_t{2}));
  EXPECT_EQ(version.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(version.message, HasSubstr("version 2, expected 1"));

  KvLayout other = kLayout;
  other.kv_heads = 3;
  const Error layout = error_of(stream, other);
  EXPECT_EQ(layout.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(layout.message, HasSubstr(kLayout.to_string()));
  EXPECT_THAT(layout.message, HasSubstr(other.to_string()));

  const Error ns = error_of(stream, kLayout, name_space(9));
  EXPECT_EQ(ns.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(ns.message, HasSubstr(name_space(1).hex()));
  EXPECT_THAT(ns.message, HasSubstr(name_space(9).hex()));
}

TEST(Snapshot, EveryFieldOfTheLayoutCounts) {
  const Bytes stream = encode(header_of(2), random_blocks());
  for (const std::size_t field : {16, 20, 24, 28}) {
    EXPECT_EQ(error_of(with_header_field(stream, field, std::uint32_t{7})).code, ErrorCode::kVersionMismatch) << field;
  }
  for (const std::size_t field : {32, 33}) {
    EXPECT_EQ(error_of(with_header_field(stream, field, std::uint8_t{9})).code, ErrorCode::kVersionMismatch) << field;
  }
}

// Checksums hold; what they protect contradicts itself or asks for too much.
TEST(Snapshot, LiesInTheHeaderAreRefused) {
  const Bytes stream = encode(header_of(2), random_blocks());
  for (const std::uint64_t tokens : {std::uint64_t{0}, kTokensMax + 1, ~std::uint64_t{0}}) {
    EXPECT_THAT(error_of(with_header_field(stream, 72, tokens)).message, HasSubstr("tokens, expected 1 to 16"));
  }
  for (const std::uint32_t layers_per_span : {0u, 3u, 8u, ~0u}) {
    EXPECT_THAT(error_of(with_header_field(stream, 36, layers_per_span)).message, HasSubstr("expected a divisor of 4"));
  }
  for (const std::size_t field : {12, 34, 80, 88, 96, 104, 112}) {
    EXPECT_THAT(error_of(with_header_field(stream, field, std::uint16_t{77})).message, HasSubstr("contradict"))
        << field;
  }
}

TEST(Snapshot, LiesInASpanAreRefused) {
  const Bytes stream = encode(header_of(2), random_blocks());
  const std::size_t item = item_at(1);
  EXPECT_THAT(error_of(with_item_field(stream, item, 0, std::uint32_t{5})).message,
              HasSubstr("neither a span nor the end"));
  for (const std::uint32_t block : {3u, ~0u}) {
    EXPECT_THAT(error_of(with_item_field(stream, item, 4, block)).message, HasSubstr("span of block"));
  }
  for (const std::uint32_t first_layer : {1u, 4u, ~0u, ~0u - 1}) {
    EXPECT_THAT(error_of(with_item_field(stream, item, 8, first_layer)).message, HasSubstr("span of block"));
  }
  for (const std::uint32_t layers : {0u, 1u, 4u, ~0u}) {
    EXPECT_THAT(error_of(with_item_field(stream, item, 12, layers)).message, HasSubstr("span of block"));
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    EXPECT_THAT(error_of(with_item_field(stream, item, 16, bytes)).message, HasSubstr("span of block"));
  }
}

TEST(Snapshot, ASpanTwiceOrMissingIsAnError) {
  const Bytes stream = encode(header_of(2), random_blocks());
  EXPECT_THAT(error_of(with_item_field(stream, item_at(1), 8, std::uint32_t{0})).message,
              HasSubstr("block 0, layer 0 comes twice"));

  Bytes missing(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(item_at(5)));
  missing.insert(missing.end(), stream.end() - kItemBytes, stream.end());
  EXPECT_THAT(error_of(missing).message, HasSubstr("1 spans missing"));

  EXPECT_THAT(error_of(with_item_field(stream, item_at(6), 16, std::uint64_t{5})).message,
              HasSubstr("its end names 5 spans"));
}

TEST(Snapshot, NothingIsTakenAfterARefusal) {
  const Bytes stream = encode(header_of(2), random_blocks());
  Receiver receiver;
  receiver.refuse = true;
  SnapshotDecoder decoder(kLayout, name_space(), kTokensMax, receiver);
  const auto refused = decoder.feed(stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted) << "the sink's own error";
  EXPECT_FALSE(decoder.feed(std::span(stream).subspan(kHeaderBytes)));
  EXPECT_FALSE(decoder.finish());
  EXPECT_TRUE(receiver.spans.empty());
}

TEST(Snapshot, ASpanIsAnnouncedOnlyOnceItsChecksumHolds) {
  Bytes stream = encode(header_of(2), random_blocks());
  stream[item_at(2) + kItemBytes + 3] ^= std::byte{1};
  Receiver receiver;
  const auto done = decode(stream, receiver);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("block 1, layer 0 fails its checksum"));
  EXPECT_EQ(receiver.spans.size(), 2u);
}

}  // namespace
}  // namespace nmc::kv
