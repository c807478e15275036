#include "lab/token_lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/rng.h"

namespace nmc::lab {
namespace {

constexpr std::string_view kLogNormal = "lognormal:";
constexpr double kSigmaMax = 10;

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::size_t> tokens_of(std::string_view text) {
  const auto number = number_of<std::size_t>(text);
  return number && *number > 0 && *number <= TokenLengths::kTokensMax ? number : std::nullopt;
}

}  // namespace

Result<TokenLengths> TokenLengths::parse(std::string_view text) {
  if (text.starts_with(kLogNormal)) {
    const std::string_view rest = text.substr(kLogNormal.size());
    const std::size_t first = rest.find(':'), second = first == rest.npos ? rest.npos : rest.find(':', first + 1);
    if (second != rest.npos) {
      const auto median = tokens_of(rest.substr(0, first)), max = tokens_of(rest.substr(second + 1));
      const auto sigma = number_of<double>(rest.substr(first + 1, second - first - 1));
      if (median && max && sigma && *sigma >= 0 && *sigma <= kSigmaMax && *median <= *max)
        return TokenLengths(1, *max, static_cast<double>(*median), *sigma);
    }
  } else if (const auto fixed = tokens_of(text)) {
    return TokenLengths(*fixed);
  } else if (const std::size_t dash = text.find('-'); dash != text.npos) {
    const auto low = tokens_of(text.substr(0, dash)), high = tokens_of(text.substr(dash + 1));
    if (low && high && *low <= *high) return TokenLengths(*low, *high);
  }
  return invalid_argument("\"{}\": expected a number of tokens from 1 to {}, LOW-HIGH, or lognormal:MEDIAN:SIGMA:MAX",
                          text.substr(0, 80), kTokensMax);
}

std::size_t TokenLengths::draw(std::uint64_t key, std::uint64_t stream, std::uint64_t index) const {
  const double u = to_unit(keyed_random(key, stream, 2 * index));
  if (median_ == 0) return low_ + static_cast<std::size_t>(u * static_cast<double>(high_ - low_ + 1));
  // Box and Muller 1958: two uniform draws make a normal one.
  const double v = to_unit(keyed_random(key, stream, 2 * index + 1));
  const double normal = std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
  const double tokens = std::round(median_ * std::exp(sigma_ * normal));
  return static_cast<std::size_t>(std::clamp(tokens, static_cast<double>(low_), static_cast<double>(high_)));
}

std::string TokenLengths::to_string() const {
  if (median_ != 0) return fmt::format("{}{}:{}:{}", kLogNormal, median_, sigma_, high_);
  return low_ == high_ ? fmt::format("{}", low_) : fmt::format("{}-{}", low_, high_);
}

}  // namespace nmc::lab
