#include "sim/prefill_cost.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

namespace nmc::sim {
namespace {

// The term's value, where `text` is a number with that after it.
std::optional<double> number_before(std::string_view text, std::string_view after) {
  if (!text.ends_with(after)) return std::nullopt;
  text.remove_suffix(after.size());
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

// Where the first term ends: at a plus that belongs to no exponent.
std::size_t end_of_term(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '+' && text[at - 1] != 'e' && text[at - 1] != 'E') return at;
  }
  return text.size();
}

}  // namespace

Result<PrefillCost> parse_prefill_cost(std::string_view text) {
  std::string dense(text);
  std::erase(dense, ' ');
  const auto wrong = [&] {
    return invalid_argument("\"{}\": expected seconds as a+b*n+c*n^2, such as 0.01+1e-4*n+1e-9*n^2", text);
  };
  std::optional<double> fixed, token, squared;
  for (std::string_view rest = dense;;) {
    const std::size_t end = end_of_term(rest);
    const std::string_view term = rest.substr(0, end);
    std::optional<double>* place = &fixed;
    std::string_view after;
    if (term.ends_with("*n^2")) {
      place = &squared;
      after = "*n^2";
    } else if (term.ends_with("*n")) {
      place = &token;
      after = "*n";
    }
    const std::optional<double> value = number_before(term, after);
    if (!value || *place) return wrong();
    *place = value;
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return PrefillCost{fixed.value_or(0), token.value_or(0), squared.value_or(0)};
}

}  // namespace nmc::sim
