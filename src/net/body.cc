#include "net/body.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"
#include "base/hash.h"

namespace nmc::net {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

// What an ErrorCode is called on the wire: its place in this list, which only grows at its end.
constexpr ErrorCode kWireCodes[] = {
    ErrorCode::kInvalidArgument,
    ErrorCode::kNotFound,
    ErrorCode::kAlreadyExists,
    ErrorCode::kCorrupt,
    ErrorCode::kVersionMismatch,
    ErrorCode::kResourceExhausted,
    ErrorCode::kUnavailable,
    ErrorCode::kDeadlineExceeded,
    ErrorCode::kCancelled,
    ErrorCode::kPermissionDenied,
    ErrorCode::kIo,
    ErrorCode::kUnsupported,
    ErrorCode::kInternal,
};

// The longest part of at most `size` bytes that doesn't end within a UTF-8 character.
std::string_view cut(std::string_view text, std::size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

}  // namespace

BodyWriter& BodyWriter::put_fixed(ByteSpan bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

BodyWriter& BodyWriter::put_bytes(ByteSpan bytes) {
  NMC_REQUIRE(bytes.size() <= UINT32_MAX, "size={}", bytes.size());
  return put_u32(static_cast<std::uint32_t>(bytes.size())).put_fixed(bytes);
}

BodyWriter& BodyWriter::put_string(std::string_view text) { return put_bytes(as_bytes(text)); }

void BodyReader::fail_short(std::string_view field, std::size_t size) {
  error_ = Error{ErrorCode::kCorrupt, fmt::format("body: field \"{}\" at offset {} takes {} bytes, {} are left", field,
                                                  offset_, size, left())};
}

ByteSpan BodyReader::get_bytes(std::string_view field) { return take(field, get_u32(field)); }

std::string_view BodyReader::get_string(std::string_view field) {
  const ByteSpan bytes = get_bytes(field);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ByteSpan BodyReader::get_fixed(std::string_view field, std::size_t size) { return take(field, size); }

std::uint32_t BodyReader::get_count(std::string_view field, std::size_t item_bytes_min) {
  NMC_REQUIRE(item_bytes_min > 0);
  const std::size_t at = offset_;
  const std::uint32_t count = get_u32(field);
  if (error_ || count <= left() / item_bytes_min) return count;
  error_ = Error{ErrorCode::kCorrupt, fmt::format("body: field \"{}\" at offset {} counts {} items, {} bytes are left",
                                                  field, at, count, left())};
  return 0;
}

Result<void> BodyReader::finish() const {
  if (error_) return Failure(*error_);
  if (left() > 0) return corrupt("body: {} bytes too many after offset {}", left(), offset_);
  return {};
}

std::vector<std::byte> encode_error(const Error& error) {
  const auto* code = std::find(std::begin(kWireCodes), std::end(kWireCodes), error.code);
  NMC_ASSERT(code != std::end(kWireCodes), "code={}", static_cast<int>(error.code));
  BodyWriter writer;
  writer.put_u32(static_cast<std::uint32_t>(code - std::begin(kWireCodes)));
  writer.put_string(cut(error.message, kErrorMessageBytesMax));
  return std::move(writer).take();
}

Error decode_error(ByteSpan body) {
  BodyReader reader(body);
  const std::uint32_t code = reader.get_u32("error code");
  const std::string_view message = reader.get_string("error message");
  if (Result<void> read = reader.finish(); !read) return std::move(read).error();
  if (code >= std::size(kWireCodes)) {
    return Error{ErrorCode::kInternal, fmt::format("error of unknown code {}: {}", code, message)};
  }
  return Error{kWireCodes[code], std::string(message)};
}

}  // namespace nmc::net
