#include "model/jinja_numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/jinja_strings.h"
#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_space(utf8_char_at(text, 0).code)) text.remove_prefix(utf8_char_at(text, 0).bytes);
  while (!text.empty()) {
    const Utf8Char last = utf8_char_before(text, text.size());
    if (!is_space(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

bool is_digit_or_letter(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Without the underscores that may stand between two digits. nullopt: one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && is_digit_or_letter(text[i - 1]) && is_digit_or_letter(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return plain;
}

}  // namespace

Result<std::optional<std::int64_t>> parse_integer(std::string_view text, std::int64_t base) {
  if (base != 2 && base != 8 && base != 10 && base != 16) {
    return unsupported("`int`: only the bases 2, 8, 10 and 16 are supported, got {}", base);
  }
  text = without_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char letter = base == 2 ? 'b' : base == 8 ? 'o' : 'x';
  if (base != 10 && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty() || !is_digit_or_letter(digits->front())) return std::optional<std::int64_t>();
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  std::int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto [stop, error] = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if (stop != end || error == std::errc::invalid_argument) return std::optional<std::int64_t>();
  if (error == std::errc::result_out_of_range) return invalid_argument("`int`: a number of more than 64 bits");
  return std::optional(value);
}

std::optional<double> parse_float(std::string_view text) {
  text = without_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty() || digits->front() == '-') return std::nullopt;
  // from_chars reads more forms of NaN than Python does.
  if (digits->find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);  // infinity or zero
  return negative ? -value : value;
}

Result<Value> truncated(double value, const Value& absent, bool infinity_is_error) {
  if (std::isnan(value)) return absent;
  if (std::isinf(value)) {
    if (infinity_is_error) return invalid_argument("`int`: an infinity is no integer");
    return absent;
  }
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value >= -kLimit && value < kLimit)) return invalid_argument("`int`: a number of more than 64 bits");
  return Value(static_cast<std::int64_t>(value));
}

double rounded(double value, std::int64_t digits) {
  if (!std::isfinite(value)) return value;
  std::array<char, 400> written{};  // the C library's digits are exact, and so are its ties
  std::snprintf(written.data(), written.size(), "%.*f", static_cast<int>(digits), value);
  return std::strtod(written.data(), nullptr);
}

Result<Value> rounded_to(double value, std::int64_t digits, bool up) {
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value * scale;
  if (!std::isfinite(scaled)) return invalid_argument("`round`: the number has no neighbours to round to");
  return Value(((up ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / scale);  // an integer has no minus zero
}

}  // namespace nmc::model::jinja
