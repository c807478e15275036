// Characters for tokenizers: UTF-8 in, properties of Unicode 16 out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::model {

enum CharClass : std::uint8_t {
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 4,   // \s, that is White_Space
  kWord = 8,    // \w
};

// General categories in the order of kCategoryNames.
inline constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// What the table says of a character: its category's index, bits of \s and \w, and whether normal forms leave it alone
// because the Python package, whose are of Unicode 9, doesn't know it.
inline constexpr std::uint8_t kPropertyCategory = 0x1F;
inline constexpr std::uint8_t kPropertySpace = 0x20;
inline constexpr std::uint8_t kPropertyWord = 0x40;
inline constexpr std::uint8_t kPropertyInert = 0x80;

// The ranges of kUnicodeTable spread out, so that a look-up takes two reads. Immutable.
class PropertyTable {
 public:
  PropertyTable();
  std::uint8_t operator[](char32_t code) const { return pages_[page_of_[code >> kShift] | (code & kMask)]; }

 private:
  static constexpr unsigned kShift = 7;
  static constexpr char32_t kMask = (1u << kShift) - 1;
  std::array<std::uint32_t, (0x110000u >> kShift)> page_of_;  // where its page begins
  std::vector<std::uint8_t> pages_;
};
const PropertyTable& property_table();

// Bits of CharClass; 0 for what is none of them.
extern const std::array<std::uint8_t, 256> kClassesOfProperty;
inline std::uint8_t char_classes(char32_t code) { return kClassesOfProperty[property_table()[code]]; }

struct Utf8Char {
  char32_t code = 0;
  std::size_t bytes = 1;
};

// A character of more than one byte, or a byte that begins none.
Utf8Char long_utf8_char_at(std::string_view text, std::size_t at);

// The character that begins at `at` (< text.size()). A byte that begins none is a character of its own, U+FFFD of one
// byte.
inline Utf8Char utf8_char_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? Utf8Char{lead, 1} : long_utf8_char_at(text, at);
}
// The one that ends at `end` (> 0), by the same rule.
Utf8Char utf8_char_before(std::string_view text, std::size_t end);

// Appends `code` (a Unicode scalar value) as UTF-8.
void append_utf8(std::string& text, char32_t code);

// Ranges of equal properties: first code point << 8 | property, ascending from 0, each up to the next.
inline constexpr std::size_t kUnicodeRanges = 4152;
extern const std::array<std::uint32_t, kUnicodeRanges> kUnicodeTable;

}  // namespace nmc::model
