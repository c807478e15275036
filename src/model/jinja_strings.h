// What Python's strings can do with themselves, on Text, so that each character of a result keeps its origin. None of
// these checks limits: callers charge their budget with the sizes involved.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/jinja_text.h"
#include "model/unicode_case.h"

namespace nmc::model::jinja {

// Time is linear, whatever the strings. npos: not found.
std::size_t find_bytes(std::string_view text, std::string_view part, std::size_t from);
std::size_t rfind_bytes(std::string_view text, std::string_view part);
// Occurrences that don't overlap; of the empty string one at each border of characters.
std::size_t count_occurrences(std::string_view text, std::string_view part);

// Where the character number `index` begins (text.size() for the one behind the last).
std::size_t byte_of_character(std::string_view text, std::size_t index);
std::size_t character_count(std::string_view text);

bool is_space(char32_t code);  // as str.isspace()

enum class Ends { kBoth, kLeft, kRight };
// Without white space, or without the characters of `characters`, at those ends.
Text strip(const Text& text, Ends ends, std::optional<std::string_view> characters = std::nullopt);

enum class From { kLeft, kRight };
// At runs of white space, or at each `separator` (not empty); at most `limit` times (negative: always).
std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, std::int64_t limit, From from);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

// At most `limit` times (negative: always).
Text replace(const Text& text, std::string_view old, const Text& by, std::int64_t limit);

Text in_case(const Text& text, LetterCase letter_case);
Text capitalize(const Text& text);   // the first character as a title's, the others lower
Text title(const Text& text);        // as str.title(): each run of letters
Text title_words(const Text& text);  // as Jinja's filter: each word, where words end at spaces, - ( { [ <
Text reverse(const Text& text);

// As str.isupper() and str.islower(): all letters that have a case, and at least one.
bool is_all_in_case(std::string_view text, LetterCase letter_case);
bool is_all(std::string_view text, std::uint8_t classes);  // bits of CharClass; false for an empty text

}  // namespace nmc::model::jinja
