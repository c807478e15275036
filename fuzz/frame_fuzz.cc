// A message as a hostile or broken peer might send it: header, sizes and body. With the lowest bit of the first byte
// set, magic, version and sizes are mended first, so that fuzzing gets past them to the fields of the body; the payload
// then tells which fields are asked for.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "net/body.h"
#include "net/frame.h"
#include "net/handshake.h"

namespace {

using namespace nmc;
using namespace nmc::net;

void require(bool condition) {
  if (!condition) std::abort();
}

// A copy of its own, so that a sanitizer sees every byte read beyond.
std::vector<std::byte> copy_of(ByteSpan bytes) { return {bytes.begin(), bytes.end()}; }

template <typename Number>
Number number_at(ByteSpan bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Sizes that fit, all else as it is; the places are those of net/frame.h.
void mend(std::vector<std::byte>& datagram) {
  if (datagram.size() < kFrameHeaderBytes) return;
  const std::size_t rest = datagram.size() - kFrameHeaderBytes;
  const std::size_t body = std::min<std::size_t>(number_at<std::uint32_t>(datagram, 12), rest);
  const bool error = number_at<std::uint8_t>(datagram, 8) % 2 == 1;
  const FrameHeaderBytes header = encode_frame_header({.op = number_at<std::uint16_t>(datagram, 6),
                                                       .status = error ? FrameStatus::kError : FrameStatus::kOk,
                                                       .body_bytes = static_cast<std::uint32_t>(error ? rest : body),
                                                       .request_id = number_at<std::uint64_t>(datagram, 16),
                                                       .payload_bytes = error ? 0 : rest - body});
  std::copy(header.begin(), header.end(), datagram.begin());
}

// Asks for the fields that `script` names, beside a model that only counts.
void read_fields(ByteSpan script, ByteSpan body) {
  BodyReader reader(body);
  std::size_t taken = 0;
  for (const std::byte step : script) {
    const bool was_ok = reader.ok();
    std::size_t fixed = 0, behind_length = 0;
    switch (static_cast<unsigned>(step) % 8) {
      case 0: reader.get_u8("u8"), fixed = 1; break;
      case 1: reader.get_u16("u16"), fixed = 2; break;
      case 2: reader.get_u32("u32"), fixed = 4; break;
      case 3: reader.get_u64("u64"), fixed = 8; break;
      case 4: behind_length = reader.get_bytes("bytes").size(), fixed = 4; break;
      case 5: behind_length = reader.get_string("string").size(), fixed = 4; break;
      case 6: fixed = reader.get_fixed("fixed", static_cast<unsigned>(step) / 8).size(); break;
      default: {
        const std::uint32_t count = reader.get_count("count", 3);
        require(std::uint64_t{count} * 3 <= reader.left());
        fixed = 4;
      }
    }
    require(was_ok || !reader.ok());
    if (!reader.ok()) break;
    taken += fixed + behind_length;
    require(taken <= body.size() && reader.left() == body.size() - taken);
  }
  require(reader.finish().has_value() == (reader.ok() && reader.left() == 0));
}

void read_messages(ByteSpan body) {
  const Error error = decode_error(body);
  require(decode_error(encode_error(error)).code == error.code);
  if (const Result<Hello> hello = decode_hello(body)) require(std::ranges::equal(encode_hello(*hello), body));
  if (const Result<Greeting> greeting = decode_greeting(body)) {
    require(std::ranges::equal(encode_greeting(*greeting), body));
  }
  if (const Result<Digest> proof = decode_proof(body)) require(std::ranges::equal(encode_proof(*proof), body));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> datagram(bytes + 1, bytes + size);
  if (data[0] % 2 == 1) mend(datagram);
  const Result<Frame> frame = split_datagram(datagram);
  if (!frame) return 0;

  const FrameHeader& header = frame->header;
  require(std::ranges::equal(encode_frame_header(header), ByteSpan(datagram).first(kFrameHeaderBytes)));
  require(kFrameHeaderBytes + frame->body.size() + frame->payload.size() == datagram.size());
  require(frame->body.size() == header.body_bytes && frame->payload.size() == header.payload_bytes);
  const std::vector<std::byte> body = copy_of(frame->body);
  read_fields(frame->payload, body);
  read_messages(body);
  return 0;
}
