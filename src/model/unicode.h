// Characters for tokenizers: UTF-8 in, classes of Unicode 16 out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nmc::model {

enum CharClass : std::uint8_t {
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 4,   // \s, that is White_Space
  kWord = 8,    // \w
};

// Bits of CharClass; 0 for what is none of them.
std::uint8_t char_classes(char32_t code);

struct Utf8Char {
  char32_t code = 0;
  std::size_t bytes = 1;
};

// The character that begins at `at` (< text.size()). A byte that begins none is a character of its own, U+FFFD of one
// byte.
Utf8Char utf8_char_at(std::string_view text, std::size_t at);
// The one that ends at `end` (> 0), by the same rule.
Utf8Char utf8_char_before(std::string_view text, std::size_t end);

// Appends `code` (a Unicode scalar value) as UTF-8.
void append_utf8(std::string& text, char32_t code);

// Ranges of equal classes: first code point << 8 | classes, ascending from 0, each up to the next.
inline constexpr std::size_t kUnicodeRanges = 2012;
extern const std::array<std::uint32_t, kUnicodeRanges> kUnicodeTable;

}  // namespace nmc::model
