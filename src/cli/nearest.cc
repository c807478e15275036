#include "cli/nearest.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace nmc::cli {
namespace {

constexpr std::size_t kWordBytesMax = 64;  // longer words are nobody's typing error

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cost((a.size() + 1) * width);  // [i][j]: first i bytes of a to first j of b
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return cost[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kWordBytesMax) return std::nullopt;
  const std::size_t limit = std::max<std::size_t>(2, word.size() / 3);
  std::optional<std::string> best;
  std::pair<std::size_t, std::size_t> best_cost = {limit + 1, 0};
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t length_difference = longer - std::min(word.size(), candidate.size());
    const std::pair cost = {edit_distance(word, candidate), length_difference};
    if (cost < best_cost && cost.first < longer) {  // a word that shares nothing with it isn't a misspelling of it
      best = candidate;
      best_cost = cost;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, std::string_view prefix) {
  const std::optional<std::string> found = nearest(word, candidates);
  return found ? fmt::format(", did you mean {}{}?", prefix, *found) : "";
}

}  // namespace nmc::cli
