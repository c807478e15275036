// The fields of a message's body, one after another without padding or names: little-endian numbers, and bytes behind
// their u32 length. Writer and reader name the same fields in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/frame.h"

namespace nmc::net {

class BodyWriter {
 public:
  BodyWriter& put_u8(std::uint8_t value) { return put_number(value); }
  BodyWriter& put_u16(std::uint16_t value) { return put_number(value); }
  BodyWriter& put_u32(std::uint32_t value) { return put_number(value); }
  BodyWriter& put_u64(std::uint64_t value) { return put_number(value); }
  BodyWriter& put_bytes(ByteSpan bytes);  // less than 4 GiB
  BodyWriter& put_string(std::string_view text);
  BodyWriter& put_fixed(ByteSpan bytes);  // whose size both sides know: no length in front

  ByteSpan bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }
  void clear() { bytes_.clear(); }  // keeps the memory, for the next message

 private:
  template <typename Number>
  BodyWriter& put_number(Number value) {
    return put_fixed(std::as_bytes(std::span(&value, 1)));
  }

  std::vector<std::byte> bytes_;
};

// Reads a body that somebody else wrote. Never reads past its end: a field that isn't there whole reads as 0 or empty,
// and so does every field after it; finish() then tells which one and where. So read all, then ask once.
class BodyReader {
 public:
  explicit BodyReader(ByteSpan body) : body_(body) {}

  std::uint8_t get_u8(std::string_view field) { return get_number<std::uint8_t>(field); }
  std::uint16_t get_u16(std::string_view field) { return get_number<std::uint16_t>(field); }
  std::uint32_t get_u32(std::string_view field) { return get_number<std::uint32_t>(field); }
  std::uint64_t get_u64(std::string_view field) { return get_number<std::uint64_t>(field); }
  ByteSpan get_bytes(std::string_view field);  // points into the body
  std::string_view get_string(std::string_view field);
  ByteSpan get_fixed(std::string_view field, std::size_t size);
  // A u32 that counts items of at least `item_bytes_min` (> 0) bytes each, which must fit in what is left: so it can
  // be allocated for.
  std::uint32_t get_count(std::string_view field, std::size_t item_bytes_min);

  std::size_t left() const { return body_.size() - offset_; }
  bool ok() const { return !error_; }
  // The first error; without one, kCorrupt if anything is left.
  Result<void> finish() const;

 private:
  template <typename Number>
  Number get_number(std::string_view field) {
    Number number = 0;
    if (const ByteSpan bytes = take(field, sizeof number); !bytes.empty()) {
      std::memcpy(&number, bytes.data(), sizeof number);
    }
    return number;
  }
  // `size` bytes, or nothing and the error.
  ByteSpan take(std::string_view field, std::size_t size) {
    if (error_) return {};
#if !defined(NMC_PLANT_FRAME)  // a bug planted to see that fuzzing finds it
    if (size > left()) {
      fail_short(field, size);
      return {};
    }
#endif
    const ByteSpan bytes(body_.data() + offset_, size);
    offset_ += size;
    return bytes;
  }
  void fail_short(std::string_view field, std::size_t size);

  ByteSpan body_;
  std::size_t offset_ = 0;
  std::optional<Error> error_;
};

// The body of an error reply: code u32, message. Long messages are cut.
constexpr std::size_t kErrorMessageBytesMax = 8 << 10;
std::vector<std::byte> encode_error(const Error& error);
// What the peer reported; if its body is malformed, an error that says so.
Error decode_error(ByteSpan body);

}  // namespace nmc::net
