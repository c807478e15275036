#include "model/unicode.h"

#include <algorithm>
#include <map>

namespace nmc::model {
namespace {

constexpr std::uint8_t classes_of(std::uint8_t property) {
  const std::size_t category = property & kPropertyCategory;
  std::uint8_t classes = 0;
  if (category < kCategoryNames.size() && kCategoryNames[category][0] == 'L') classes |= kLetter;
  if (category < kCategoryNames.size() && kCategoryNames[category][0] == 'N') classes |= kNumber;
  if ((property & kPropertySpace) != 0) classes |= kSpace;
  if ((property & kPropertyWord) != 0) classes |= kWord;
  return classes;
}

}  // namespace

constinit const std::array<std::uint8_t, 256> kClassesOfProperty = [] {
  std::array<std::uint8_t, 256> classes{};
  for (unsigned i = 0; i < classes.size(); ++i) classes[i] = classes_of(static_cast<std::uint8_t>(i));
  return classes;
}();

PropertyTable::PropertyTable() {
  // Equal pages are kept once.
  std::map<std::array<std::uint8_t, kMask + 1>, std::uint32_t> known;
  std::size_t range = 0;
  for (char32_t page = 0; page < page_of_.size(); ++page) {
    std::array<std::uint8_t, kMask + 1> properties;
    for (char32_t i = 0; i <= kMask; ++i) {
      const char32_t code = page << kShift | i;
      while (range + 1 < kUnicodeTable.size() && kUnicodeTable[range + 1] >> 8 <= code) ++range;
      properties[i] = static_cast<std::uint8_t>(kUnicodeTable[range]);
    }
    const auto [it, is_new] = known.emplace(properties, static_cast<std::uint32_t>(pages_.size()));
    if (is_new) pages_.insert(pages_.end(), properties.begin(), properties.end());
    page_of_[page] = it->second;
  }
}

const PropertyTable& property_table() {
  static const PropertyTable table;
  return table;
}

// Bounds of the second byte keep out overlong forms, surrogates and what lies beyond U+10FFFF.
Utf8Char long_utf8_char_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  const std::size_t bytes = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes == 1 || text.size() - at < bytes) return {0xFFFD, 1};
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return {0xFFFD, 1};
  char32_t code = (lead & (0xFFu >> (bytes + 1))) << 6 | (byte(1) & 0x3Fu);
  for (std::size_t i = 2; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80) return {0xFFFD, 1};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
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
