// Finds the end that a client asked for in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::http {

// Text before the stop string that is complete first (of several complete at once, the longest) goes through; that
// string and what follows doesn't. What comes out, joined, does not depend on how the text was cut, and is held back
// only as long as it may still turn out to be the beginning of a stop string. Cuts only at characters' borders if text
// and stop strings are UTF-8. Not thread-safe.
class StopMatcher {
 public:
  // None of `stops` is empty. `include_stop`: the stop string itself goes through, too.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // What can be shown now.
  std::string push(std::string_view text);
  // The text is over: what was held back.
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  const std::string& matched() const { return patterns_[*matched_].text; }  // once stopped

 private:
  // Knuth, Morris, Pratt: how far into the string we are, byte by byte.
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> border;  // border[i]: longest proper border of text[0..i]
    std::size_t reached = 0;

    explicit Pattern(std::string pattern);
    bool advance(char c);  // true: the string is complete
  };

  const bool include_stop_;
  std::vector<Pattern> patterns_;  // longest first
  std::string held_;               // ends with the longest reached prefix of any pattern
  std::optional<std::size_t> matched_;
};

}  // namespace nmc::http
