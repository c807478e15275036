#include "model/piece_patterns.h"

#include <array>

#include "model/char_set.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

// kLetter, kNumber or kSpace, or 0 for all the rest: the four kinds the patterns tell apart.
std::uint8_t kind_of(char32_t code) { return char_classes(code) & (kLetter | kNumber | kSpace); }

bool is_newline(char byte) { return byte == '\n' || byte == '\r'; }

std::size_t run_end(std::string_view text, std::size_t at, std::uint8_t kind) {
  while (at < text.size()) {
    const Utf8Char next = utf8_char_at(text, at);
    if (kind_of(next.code) != kind) break;
    at += next.bytes;
  }
  return at;
}

// \s+(?!\S)|\s+ for the run of spaces from `at` to `end`: it leaves its last one to what follows, unless it has only
// that or nothing follows.
std::size_t space_end(std::string_view text, std::size_t at, std::size_t end) {
  if (end == text.size()) return end;
  const std::size_t before_last = end - utf8_char_before(text, end).bytes;
  return before_last > at ? before_last : end;
}

// Length of the contraction at the start of `text`, 0 if there is none.
std::size_t contraction_bytes(std::string_view text) {
  static constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  if (text[0] != '\'') return 0;
  for (const std::string_view contraction : kContractions) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  return 0;
}

// The same with letters of either case, the long s included.
std::size_t contraction_bytes_of_any_case(std::string_view text) {
  if (text[0] != '\'' || text.size() == 1) return 0;
  const Utf8Char first = utf8_char_at(text, 1);
  const char32_t letter = fold_to_ascii(first.code);
  if (letter == 's' || letter == 't' || letter == 'm' || letter == 'd') return 1 + first.bytes;
  if (text.size() == 2) return 0;
  const char32_t second = fold_to_ascii(static_cast<unsigned char>(text[2]));
  const bool is_one =
      (letter == 'r' && second == 'e') || (letter == 'v' && second == 'e') || (letter == 'l' && second == 'l');
  return is_one ? 3 : 0;
}

// Up to `count` digits.
std::size_t digits_end(std::string_view text, std::size_t at, int count) {
  for (; count > 0 && at < text.size(); --count) {
    const Utf8Char next = utf8_char_at(text, at);
    if (kind_of(next.code) != kNumber) break;
    at += next.bytes;
  }
  return at;
}

template <int kDigits>
std::size_t word_piece_end(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes_of_any_case(text.substr(at))) return at + bytes;
  const Utf8Char first = utf8_char_at(text, at);
  const std::uint8_t kind = kind_of(first.code);
  const std::size_t second = at + first.bytes;
  if (kind == kLetter) return run_end(text, second, kLetter);
  if (kind == kNumber) return digits_end(text, at, kDigits);

  // A sign or a space in front of a word belongs to it, a space in front of signs too.
  std::uint8_t next_kind = kSpace;
  if (second < text.size()) next_kind = kind_of(utf8_char_at(text, second).code);
  if (next_kind == kLetter && !is_newline(text[at])) return run_end(text, second, kLetter);
  if (kind == 0 || (text[at] == ' ' && next_kind == 0)) {
    std::size_t end = run_end(text, second, 0);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const std::size_t end = run_end(text, second, kSpace);
  for (std::size_t last = end; last > at; --last) {
    if (is_newline(text[last - 1])) return last;
  }
  return space_end(text, at, end);
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t at) {
  if (const std::size_t bytes = contraction_bytes(text.substr(at))) return at + bytes;
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  if (start < text.size()) {
    const std::uint8_t kind = kind_of(utf8_char_at(text, start).code);
    if (kind != kSpace) return run_end(text, start, kind);
  }
  return space_end(text, at, run_end(text, at, kSpace));
}

std::size_t llama3_piece_end(std::string_view text, std::size_t at) { return word_piece_end<3>(text, at); }

std::size_t qwen2_piece_end(std::string_view text, std::size_t at) { return word_piece_end<1>(text, at); }

PieceEnd piece_end_of(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return gpt2_piece_end;
  if (pattern == kLlama3Pattern || pattern == kCl100kPattern) return llama3_piece_end;
  if (pattern == kQwen2Pattern) return qwen2_piece_end;
  return nullptr;
}

}  // namespace nmc::model
