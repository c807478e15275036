#include "http/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nmc::http {

StopMatcher::Pattern::Pattern(std::string pattern) : text(std::move(pattern)), border(text.size(), 0) {
  NMC_REQUIRE(!text.empty());
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::uint32_t length = border[i - 1];
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    border[i] = text[i] == text[length] ? length + 1 : 0;
  }
}

bool StopMatcher::Pattern::advance(char c) {
  while (reached > 0 && text[reached] != c) reached = border[reached - 1];
  if (text[reached] == c) ++reached;
  return reached == text.size();
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  std::ranges::stable_sort(stops, std::greater<>(), &std::string::size);
  for (std::string& stop : stops) patterns_.emplace_back(std::move(stop));
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  if (patterns_.empty()) return std::string(text);
  for (const char c : text) {
    held_ += c;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!patterns_[i].advance(c)) continue;
      matched_ = i;
      if (!include_stop_) held_.resize(held_.size() - patterns_[i].text.size());
      return std::exchange(held_, {});
    }
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.reached);
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace nmc::http
