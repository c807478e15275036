#include "model/unicode_case.h"

#include <algorithm>
#include <span>

#include "model/unicode.h"

namespace nmc::model {
namespace {

struct Tables {
  std::span<const CaseRun> runs;
  std::span<const CaseExpansion> expansions;
};

Tables tables_of(LetterCase letter_case) {
  switch (letter_case) {
    case LetterCase::kLower: return {kLowerRunTable, kLowerExpansionTable};
    case LetterCase::kUpper: return {kUpperRunTable, kUpperExpansionTable};
    case LetterCase::kTitle: return {kTitleRunTable, kTitleExpansionTable};
  }
  return {};
}

const CaseRun* find_run(std::span<const CaseRun> runs, std::uint32_t code) {
  const auto after = std::ranges::upper_bound(runs, code, {}, &CaseRun::first);
  if (after == runs.begin()) return nullptr;
  const CaseRun& run = *std::prev(after);
  const std::uint32_t distance = code - run.first;
  return distance % run.step == 0 && distance / run.step < run.count ? &run : nullptr;
}

const CaseExpansion* find_expansion(std::span<const CaseExpansion> expansions, std::uint32_t code) {
  const auto it = std::ranges::lower_bound(expansions, code, {}, &CaseExpansion::code);
  return it != expansions.end() && it->code == code ? &*it : nullptr;
}

bool changes(char32_t code, LetterCase letter_case) {
  const Tables tables = tables_of(letter_case);
  return find_run(tables.runs, code) != nullptr || find_expansion(tables.expansions, code) != nullptr;
}

}  // namespace

void append_in_case(std::string& text, char32_t code, LetterCase letter_case) {
  if (code < 0x80) {
    const bool from_lower = letter_case != LetterCase::kLower && code >= 'a' && code <= 'z';
    const bool from_upper = letter_case == LetterCase::kLower && code >= 'A' && code <= 'Z';
    text.push_back(static_cast<char>(from_lower || from_upper ? code ^ 0x20 : code));
    return;
  }
  const Tables tables = tables_of(letter_case);
  if (const CaseExpansion* expansion = find_expansion(tables.expansions, code)) {
    for (const std::uint32_t to : expansion->to) {
      if (to != 0) append_utf8(text, to);
    }
    return;
  }
  const CaseRun* run = find_run(tables.runs, code);
  append_utf8(text, run == nullptr ? code : static_cast<char32_t>(static_cast<std::int64_t>(code) + run->delta));
}

bool is_upper_case(char32_t code) { return changes(code, LetterCase::kLower); }
bool is_lower_case(char32_t code) { return changes(code, LetterCase::kUpper) && !is_upper_case(code); }
bool has_case(char32_t code) { return changes(code, LetterCase::kLower) || changes(code, LetterCase::kUpper); }

bool is_printable(char32_t code) {
  const auto after = std::ranges::upper_bound(kPrintableEdgeTable, static_cast<std::uint32_t>(code));
  return (after - kPrintableEdgeTable.begin()) % 2 == 1;
}

}  // namespace nmc::model
