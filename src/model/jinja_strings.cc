#include "model/jinja_strings.h"

#include <cstring>
#include <utility>

#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

bool is_cased_neighbour(std::string_view bytes, std::size_t at, bool after) {
  if (after) return at < bytes.size() && has_case(utf8_char_at(bytes, at).code);
  return at > 0 && has_case(utf8_char_before(bytes, at).code);
}

// Greek sigma has a form of its own at the end of a word.
constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2;

void append_changed(Text& out, const Text& text, std::size_t at, Utf8Char character, LetterCase letter_case) {
  std::string changed;
  const std::string_view bytes = text.bytes();
  if (letter_case == LetterCase::kLower && character.code == kCapitalSigma && is_cased_neighbour(bytes, at, false) &&
      !is_cased_neighbour(bytes, at + character.bytes, true)) {
    append_utf8(changed, kFinalSigma);
  } else {
    append_in_case(changed, character.code, letter_case);
  }
  out.append(changed, text.origin_at(at));
}

// Each character in the case that `choose` gives for it.
template <typename Choose>
Text map_case(const Text& text, Choose choose) {
  Text out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_char_at(text.bytes(), at);
    append_changed(out, text, at, character, choose(character.code));
    at += character.bytes;
  }
  return out;
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool contains_character(std::string_view characters, std::string_view character) {
  return characters.find(character) != std::string_view::npos;
}

// Runs of white space are one border, and those at the ends none; what is left when the limit is reached stays whole.
std::vector<Text> split_at_space(const Text& text, std::int64_t limit) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  std::size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size() && is_space(utf8_char_at(bytes, at).code) == spaces) at += utf8_char_at(bytes, at).bytes;
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(text.slice(at, bytes.size()));
      break;
    }
    const std::size_t begin = at;
    skip(false);
    parts.push_back(text.slice(begin, at));
  }
  return parts;
}

std::vector<Text> rsplit_at_space(const Text& text, std::int64_t limit) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  std::size_t at = bytes.size();
  const auto skip = [&](bool spaces) {
    while (at > 0 && is_space(utf8_char_before(bytes, at).code) == spaces) at -= utf8_char_before(bytes, at).bytes;
  };
  for (skip(true); at > 0; skip(true)) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(text.slice(0, at));
      break;
    }
    const std::size_t end = at;
    skip(false);
    parts.push_back(text.slice(at, end));
  }
  return {parts.rbegin(), parts.rend()};
}

std::vector<Text> split_at(const Text& text, std::string_view separator, std::int64_t limit) {
  std::vector<Text> parts;
  std::size_t begin = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t found = find_bytes(text.bytes(), separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(begin, found));
    begin = found + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

// Searches the reversed text from its beginning, which keeps the time linear.
std::vector<Text> rsplit_at(const Text& text, std::string_view separator, std::int64_t limit) {
  const std::string reversed(text.bytes().rbegin(), text.bytes().rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  std::vector<Text> parts;
  std::size_t done = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t found = find_bytes(reversed, reversed_separator, done);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(text.size() - found, text.size() - done));
    done = found + separator.size();
  }
  parts.push_back(text.slice(0, text.size() - done));
  return {parts.rbegin(), parts.rend()};
}

// `by` in front of each character and at the end.
Text insert_between(const Text& text, const Text& by, std::int64_t limit) {
  Text out;
  std::size_t at = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    out.append(by);
    if (at == text.size()) return out;
    const std::size_t next = at + utf8_char_at(text.bytes(), at).bytes;
    out.append_slice(text, at, next);
    at = next;
  }
  out.append_slice(text, at, text.size());
  return out;
}

}  // namespace

std::size_t find_bytes(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // Unlike std::string_view::find it never compares the same bytes again and again.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t rfind_bytes(std::string_view text, std::string_view part) {
  // Reversed, the last occurrence is the first one.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const std::size_t found = find_bytes(reversed_text, reversed_part, 0);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::size_t count_occurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return character_count(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_bytes(text, part, 0); at != std::string_view::npos;
       at = find_bytes(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += utf8_char_at(text, at).bytes;
  return at;
}

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

bool is_space(char32_t code) { return (code >= 0x1C && code <= 0x1F) || (char_classes(code) & CharClass::kSpace) != 0; }

Text strip(const Text& text, Ends ends, std::optional<std::string_view> characters) {
  const std::string_view bytes = text.bytes();
  const auto goes = [&](std::size_t at, Utf8Char character) {
    return characters ? contains_character(*characters, bytes.substr(at, character.bytes)) : is_space(character.code);
  };
  std::size_t begin = 0, end = bytes.size();
  while (ends != Ends::kRight && begin < end && goes(begin, utf8_char_at(bytes, begin))) {
    begin += utf8_char_at(bytes, begin).bytes;
  }
  while (ends != Ends::kLeft && begin < end) {
    const Utf8Char last = utf8_char_before(bytes, end);
    if (!goes(end - last.bytes, last)) break;
    end -= last.bytes;
  }
  return text.slice(begin, end);
}

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, std::int64_t limit, From from) {
  if (!separator) return from == From::kLeft ? split_at_space(text, limit) : rsplit_at_space(text, limit);
  // Where there is no limit both directions differ only if separators may overlap ("aa" in "aaa").
  return from == From::kLeft ? split_at(text, *separator, limit) : rsplit_at(text, *separator, limit);
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char character = utf8_char_at(bytes, at);
    const std::size_t line_end = at;
    at += character.bytes;
    if (!is_line_end(character.code)) continue;
    if (character.code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : line_end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

Text replace(const Text& text, std::string_view old, const Text& by, std::int64_t limit) {
  if (old.empty()) return insert_between(text, by, limit);
  Text out;
  std::size_t begin = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    const std::size_t found = find_bytes(text.bytes(), old, begin);
    if (found == std::string_view::npos) break;
    out.append_slice(text, begin, found);
    out.append(by);
    begin = found + old.size();
  }
  out.append_slice(text, begin, text.size());
  return out;
}

Text in_case(const Text& text, LetterCase letter_case) {
  return map_case(text, [&](char32_t) { return letter_case; });
}

Text capitalize(const Text& text) {
  LetterCase next = LetterCase::kTitle;
  return map_case(text, [&](char32_t) { return std::exchange(next, LetterCase::kLower); });
}

Text title(const Text& text) {
  bool in_word = false;
  return map_case(text, [&](char32_t code) {
    const bool first = !in_word;
    in_word = has_case(code);
    return first ? LetterCase::kTitle : LetterCase::kLower;
  });
}

Text title_words(const Text& text) {
  const auto ends_word = [](char32_t code) {
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
  };
  bool first = true;
  return map_case(text, [&](char32_t code) {
    const bool upper = first && !ends_word(code);
    first = ends_word(code);
    return upper ? LetterCase::kUpper : LetterCase::kLower;
  });
}

Text reverse(const Text& text) {
  Text out;
  for (std::size_t end = text.size(); end > 0;) {
    const std::size_t begin = end - utf8_char_before(text.bytes(), end).bytes;
    out.append_slice(text, begin, end);
    end = begin;
  }
  return out;
}

bool is_all_in_case(std::string_view text, LetterCase letter_case) {
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_char_at(text, at);
    at += character.bytes;
    if (!has_case(character.code)) continue;
    const bool fits = letter_case == LetterCase::kUpper ? is_upper_case(character.code) : is_lower_case(character.code);
    if (!fits) return false;
    found = true;
  }
  return found;
}

bool is_all(std::string_view text, std::uint8_t classes) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_char_at(text, at);
    if ((char_classes(character.code) & classes) == 0) return false;
    at += character.bytes;
  }
  return !text.empty();
}

}  // namespace nmc::model::jinja
