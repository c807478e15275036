#include "model/unicode.h"

#include <algorithm>

#include "base/json.h"

namespace nmc::model {
namespace {

std::uint8_t look_up(char32_t code) {
  const std::uint32_t key = (static_cast<std::uint32_t>(code) << 8) | 0xff;
  return static_cast<std::uint8_t>(*std::prev(std::ranges::upper_bound(kUnicodeTable, key)));
}

}  // namespace

std::uint8_t char_classes(char32_t code) {
  static const std::array<std::uint8_t, 128> ascii = [] {
    std::array<std::uint8_t, 128> classes{};
    for (char32_t c = 0; c < classes.size(); ++c) classes[c] = look_up(c);
    return classes;
  }();
  return code < ascii.size() ? ascii[code] : look_up(code);
}

Utf8Char utf8_char_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  const std::string_view piece = text.substr(at, bytes);
  if (piece.size() < bytes || !is_valid_utf8(piece)) return {0xFFFD, 1};
  char32_t code = lead & (0xFFu >> (bytes + 1));
  for (const char next : piece.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
  return {code, bytes};
}

Utf8Char utf8_char_before(std::string_view text, std::size_t end) {
  for (std::size_t bytes = 2; bytes <= 4 && bytes <= end; ++bytes) {
    const Utf8Char found = utf8_char_at(text, end - bytes);
    if (found.bytes == bytes) return found;
  }
  return utf8_char_at(text, end - 1);
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text.push_back(static_cast<char>(code));
    return;
  }
  const int rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr std::array<unsigned, 4> kLead = {0, 0xC0, 0xE0, 0xF0};
  text.push_back(static_cast<char>(kLead[static_cast<std::size_t>(rest)] | (code >> (6 * rest))));
  for (int shift = 6 * (rest - 1); shift >= 0; shift -= 6) {
    text.push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  }
}

}  // namespace nmc::model
