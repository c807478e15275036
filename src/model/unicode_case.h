// Upper, lower and title case of characters, and whether Python's repr() prints them as they are: what the strings of
// chat templates need beyond the classes of unicode.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nmc::model {

enum class LetterCase { kLower, kUpper, kTitle };

// Appends `code` in that case as UTF-8; one character may become up to three.
void append_in_case(std::string& text, char32_t code, LetterCase letter_case);

// Has an upper or a lower case form other than itself, or is one.
bool has_case(char32_t code);
bool is_upper_case(char32_t code);
bool is_lower_case(char32_t code);

bool is_printable(char32_t code);

// `count` characters from `first` on, `step` apart, each mapped to itself plus `delta`.
struct CaseRun {
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t step;
  std::int32_t delta;
};
struct CaseExpansion {
  std::uint32_t code;
  std::array<std::uint32_t, 3> to;  // 0: no more
};

inline constexpr std::size_t kLowerRuns = 181, kLowerExpansions = 1;
inline constexpr std::size_t kUpperRuns = 194, kUpperExpansions = 102;
inline constexpr std::size_t kTitleRuns = 196, kTitleExpansions = 48;
inline constexpr std::size_t kPrintableEdges = 1400;  // ascending; printable from an even one on, not from an odd one
extern const std::array<CaseRun, kLowerRuns> kLowerRunTable;
extern const std::array<CaseRun, kUpperRuns> kUpperRunTable;
extern const std::array<CaseRun, kTitleRuns> kTitleRunTable;
extern const std::array<CaseExpansion, kLowerExpansions> kLowerExpansionTable;
extern const std::array<CaseExpansion, kUpperExpansions> kUpperExpansionTable;
extern const std::array<CaseExpansion, kTitleExpansions> kTitleExpansionTable;
extern const std::array<std::uint32_t, kPrintableEdges> kPrintableEdgeTable;

}  // namespace nmc::model
