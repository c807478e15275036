// Sets of characters as regular expressions write them: [^\s\p{L}a-z].
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace nmc::model {

// Build it with the add...() methods, then call finish() once; after that it is immutable and thread-safe.
class CharSet {
 public:
  void add(char32_t first, char32_t last) { ranges_.emplace_back(first, last); }
  void add_categories(std::uint32_t mask) { categories_ |= mask; }  // bits of kCategoryNames
  void add_space(bool is_in);                                       // \s or \S
  void add_word(bool is_in);                                        // \w or \W, as Oniguruma sees them
  // `ignore_case` holds for the letters a to z and what folds to them; other letters stay what they are.
  void finish(bool negated, bool ignore_case);

  bool contains(char32_t code) const { return code < 128 ? ascii_[code] : contains_slow(code); }
  // A character beyond ASCII may be in it.
  bool may_contain_others() const { return may_contain_others_; }

 private:
  bool is_listed(char32_t code) const;
  bool contains_slow(char32_t code) const;

  std::vector<std::pair<char32_t, char32_t>> ranges_;  // once finished: ascending, none touches another
  std::uint32_t categories_ = 0;
  std::uint8_t with_ = 0;     // property bits, any of which is enough
  std::uint8_t without_ = 0;  // property bits, whose absence is enough
  bool negated_ = false;
  bool ignore_case_ = false;
  bool may_contain_others_ = true;
  std::bitset<128> ascii_;
};

// The categories of \p{name}: "L", "Lu", ... Nothing for other names.
std::optional<std::uint32_t> categories_named(std::string_view name);

// The letters a to z that `code` folds to, and `code` itself for any other.
char32_t fold_to_ascii(char32_t code);

}  // namespace nmc::model
