// A snapshot as a hostile or broken peer might send it. The first byte tells how to cut the stream into pieces; with
// its lowest bit set, checksums are mended first, so that fuzzing gets past them to what they protect.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "kv/snapshot.h"

namespace {

using namespace nmc;
using namespace nmc::kv;

constexpr KvLayout kLayout{.layers = 4, .kv_heads = 1, .head_dim = 2, .block_tokens = 4, .dtype = Dtype::kBf16};
constexpr std::uint64_t kTokensMax = 16;
constexpr std::size_t kHeaderBytes = 128, kItemBytes = 40;

void require(bool condition) {
  if (!condition) std::abort();
}

void put_word(std::span<std::byte> bytes, std::size_t at, std::uint64_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The places of checksums: docs/formats.md, "Snapshot".
void mend(std::span<std::byte> stream) {
  if (stream.size() < kHeaderBytes) return;
  put_word(stream, kHeaderBytes - 8, checksum64(stream.first(kHeaderBytes - 8)));
  stream = stream.subspan(kHeaderBytes);
  while (stream.size() >= kItemBytes) {
    std::uint64_t payload_bytes;
    std::memcpy(&payload_bytes, stream.data() + 16, sizeof payload_bytes);
    const bool end = std::memcmp(stream.data(), "END!", 4) == 0;
    const std::size_t payload = end ? 0 : std::min<std::uint64_t>(payload_bytes, stream.size() - kItemBytes);
    if (!end) put_word(stream, 24, checksum64(stream.subspan(kItemBytes, payload)));
    put_word(stream, kItemBytes - 8, checksum64(stream.first(kItemBytes - 8)));
    stream = stream.subspan(kItemBytes + payload);
  }
}

class Receiver final : public SnapshotSink {
 public:
  Result<void> on_header(const SnapshotHeader& header) override {
    require(header.layout == kLayout && header.tokens > 0 && header.tokens <= kTokensMax);
    header_ = header;
    memory.assign(header.blocks(), std::vector<std::byte>(header.layout.block_bytes()));
    return {};
  }
  std::byte* block(std::uint32_t index) override {
    require(index < memory.size());
    return memory[index].data();
  }
  void on_span(std::uint32_t block, std::uint32_t first_layer, std::uint32_t layers) override {
    require(block < memory.size() && first_layer + layers <= kLayout.layers);
    layers_placed += layers;
  }
  const SnapshotHeader& header() const { return header_; }

  std::vector<std::vector<std::byte>> memory;
  std::uint64_t layers_placed = 0;

 private:
  SnapshotHeader header_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> stream(bytes + 1, bytes + size);
  if (data[0] % 2 == 1) mend(stream);
  const std::size_t piece = data[0] / 2 == 0 ? stream.size() : data[0] / 2;

  Receiver receiver;
  SnapshotDecoder decoder(kLayout, Digest(), kTokensMax, receiver);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) {
    const std::size_t taken = std::min(piece, rest.size());
    if (!decoder.feed(rest.first(taken))) {
      require(!decoder.finish());
      return 0;
    }
    rest = rest.subspan(taken);
  }
  if (!decoder.finish()) return 0;

  // What decodes is complete, and encodes to a stream of the same size that decodes to the same blocks.
  require(receiver.layers_placed == receiver.memory.size() * kLayout.layers);
  std::vector<const std::byte*> blocks;
  for (const auto& block : receiver.memory) blocks.push_back(block.data());
  std::vector<std::byte> again(snapshot_bytes(receiver.header()));
  require(again.size() == stream.size());
  encode_snapshot(receiver.header(), blocks, again);
  Receiver second;
  SnapshotDecoder decoder_of_again(kLayout, Digest(), kTokensMax, second);
  require(decoder_of_again.feed(again).has_value() && decoder_of_again.finish().has_value());
  require(second.memory == receiver.memory);
  return 0;
}
