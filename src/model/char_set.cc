#include "model/char_set.h"

#include <algorithm>

#include "model/unicode.h"

namespace nmc::model {
namespace {

bool is_lower(char32_t code) { return code >= 'a' && code <= 'z'; }

// Oniguruma counts superscripts and fractions of Latin-1 as \w, and joiners not.
bool is_word(char32_t code, std::uint8_t property) {
  if (code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE)) return true;
  return (property & kPropertyWord) != 0 && code != 0x200C && code != 0x200D;
}

}  // namespace

void CharSet::add_space(bool is_in) { (is_in ? with_ : without_) |= kPropertySpace; }

void CharSet::add_word(bool is_in) { (is_in ? with_ : without_) |= kPropertyWord; }

void CharSet::finish(bool negated, bool ignore_case) {
  std::ranges::sort(ranges_);
  std::vector<std::pair<char32_t, char32_t>> merged;
  for (const auto& [first, last] : ranges_) {
    if (!merged.empty() && first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, last);
    } else {
      merged.emplace_back(first, last);
    }
  }
  ranges_ = std::move(merged);
  negated_ = negated;
  ignore_case_ = ignore_case;
  for (char32_t code = 0; code < ascii_.size(); ++code) ascii_[code] = contains_slow(code);
  const bool only_ascii = categories_ == 0 && with_ == 0 && without_ == 0 && !ignore_case &&
                          std::ranges::all_of(ranges_, [](const auto& range) { return range.second < 128; });
  may_contain_others_ = negated || !only_ascii;
}

bool CharSet::is_listed(char32_t code) const {
  std::uint8_t property = property_table()[code] & ~kPropertyWord;
  if (is_word(code, property_table()[code])) property |= kPropertyWord;
  if ((categories_ >> (property & kPropertyCategory) & 1) != 0) return true;
  if ((property & with_) != 0 || (~property & without_) != 0) return true;
  // The last range that begins at or before the code.
  const auto after = std::ranges::upper_bound(ranges_, code, {}, &std::pair<char32_t, char32_t>::first);
  return after != ranges_.begin() && code <= std::prev(after)->second;
}

bool CharSet::contains_slow(char32_t code) const {
  bool listed = is_listed(code);
  if (const char32_t folded = ignore_case_ ? fold_to_ascii(code) : 0; !listed && is_lower(folded)) {
    listed = is_listed(folded) || is_listed(folded - 'a' + 'A');
    // What else folds to these letters.
    if (!listed && folded == 's') listed = is_listed(U'ſ');
    if (!listed && folded == 'k') listed = is_listed(U'\u212A');
  }
  return listed != negated_;
}

std::optional<std::uint32_t> categories_named(std::string_view name) {
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < kCategoryNames.size(); ++i) {
    if (kCategoryNames[i] == name || (name.size() == 1 && kCategoryNames[i][0] == name[0])) mask |= 1u << i;
  }
  return mask == 0 ? std::nullopt : std::optional(mask);
}

char32_t fold_to_ascii(char32_t code) {
  if (code >= 'A' && code <= 'Z') return code - 'A' + 'a';
  if (code == U'ſ') return 's';
  if (code == U'\u212A') return 'k';  // the sign of kelvin
  return code;
}

}  // namespace nmc::model
