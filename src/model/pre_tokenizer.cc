#include "model/pre_tokenizer.h"

#include <array>
#include <string>

#include "model/unicode.h"

namespace nmc::model {
namespace {

// kLetter, kNumber or kSpace, or 0 for all the rest: the four kinds the pattern tells apart.
std::uint8_t kind_of(char32_t code) { return char_classes(code) & (kLetter | kNumber | kSpace); }

// Length of the contraction at the start of `text`, 0 if there is none.
std::size_t contraction_bytes(std::string_view text) {
  static constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view contraction : kContractions) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  return 0;
}

std::size_t run_end(std::string_view text, std::size_t at, std::uint8_t kind) {
  while (at < text.size()) {
    const Utf8Char next = utf8_char_at(text, at);
    if (kind_of(next.code) != kind) break;
    at += next.bytes;
  }
  return at;
}

// \s+(?!\S)|\s+ : a run of spaces leaves its last one to what follows, unless it has only that or nothing follows.
std::size_t space_end(std::string_view text, std::size_t at) {
  const std::size_t end = run_end(text, at, kSpace);
  if (end == text.size()) return end;
  const std::size_t before_last = end - utf8_char_before(text, end).bytes;
  return before_last > at ? before_last : end;
}

void split_by_pattern(std::string_view text, FunctionRef<void(std::string_view)> piece) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = gpt2_piece_end(text, at);
    piece(text.substr(at, end - at));
    at = end;
  }
}

bool is_number(char32_t code) { return (char_classes(code) & kNumber) != 0; }

// Consecutive sections of digits and of the rest.
void split_by_digits(std::string_view text, bool individual, FunctionRef<void(std::string_view)> section) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char first = utf8_char_at(text, at);
    const bool number = is_number(first.code);
    std::size_t end = at + first.bytes;
    while (end < text.size() && !(number && individual)) {
      const Utf8Char next = utf8_char_at(text, end);
      if (is_number(next.code) != number) break;
      end += next.bytes;
    }
    section(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes(text.substr(at))) return at + bytes;
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  if (start < text.size()) {
    const std::uint8_t kind = kind_of(utf8_char_at(text, start).code);
    if (kind != kSpace) return run_end(text, start, kind);
  }
  return space_end(text, at);
}

void PreTokenizer::for_each_piece(std::string_view text, FunctionRef<void(std::string_view)> piece) const {
  const auto byte_level = [&](std::string_view section) {
    std::string prefixed;
    if (add_prefix_space && !section.starts_with(' ')) {
      prefixed.append(" ").append(section);
      section = prefixed;
    }
    if (use_pattern) {
      split_by_pattern(section, piece);
    } else {
      piece(section);
    }
  };
  if (text.empty()) return;
  if (digits == Digits::kWithRest) {
    byte_level(text);
  } else {
    split_by_digits(text, digits == Digits::kIndividual, byte_level);
  }
}

}  // namespace nmc::model
