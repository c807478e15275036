#include "cli/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/output.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view escape_of(Style style) {
  switch (style) {
    case Style::kPlain: return "";
    case Style::kBold: return "\x1b[1m";
    case Style::kDim: return "\x1b[2m";
    case Style::kBlue: return "\x1b[38;5;69m";
    case Style::kDeepBlue: return "\x1b[38;5;27m";
    case Style::kOrange: return "\x1b[38;5;172m";
    case Style::kPurple: return "\x1b[38;5;98m";
    case Style::kGreen: return "\x1b[32m";
    case Style::kRed: return "\x1b[31m";
  }
  return "";
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

// The first `columns` characters.
std::string_view prefix_of(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (is_continuation(text[end])) continue;
    if (columns == 0) break;
    --columns;
  }
  return text.substr(0, end);
}

std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (std::ptrdiff_t at = std::ssize(digits) - 3; at > (digits.starts_with('-') ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace

Line& Line::add(std::string_view text, Style style) {
  pieces_.push_back({printable(text), style});
  return *this;
}

Line& Line::left(std::string_view text, std::size_t width, Style style) {
  add(text, style);
  return add(std::string(width - std::min(width, display_width(pieces_.back().text)), ' '));
}

Line& Line::right(std::string_view text, std::size_t width, Style style) {
  add(std::string(width - std::min(width, display_width(printable(text))), ' '));
  return add(text, style);
}

std::size_t Line::width() const {
  std::size_t sum = 0;
  for (const Piece& piece : pieces_) sum += display_width(piece.text);
  return sum;
}

std::string Line::render(std::size_t columns, bool colours) const {
  std::string result;
  for (const Piece& piece : pieces_) {
    const std::string_view text = prefix_of(piece.text, columns);
    if (text.empty()) continue;
    columns -= display_width(text);
    const std::string_view escape = colours ? escape_of(piece.style) : "";
    result += escape;
    result += text;
    if (!escape.empty()) result += kReset;
  }
  if (!colours) result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

std::string render_lines(std::span<const Line> lines, std::size_t columns, bool colours) {
  std::string text;
  for (const Line& line : lines) text += line.render(columns, colours) + '\n';
  return text;
}

std::vector<std::size_t> share_out(std::span<const double> counts, std::size_t cells) {
  std::vector<std::size_t> shares(counts.size());
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (total <= 0 || counts.empty()) return shares;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto share = static_cast<std::size_t>(std::lround(counts[i] / total * static_cast<double>(cells)));
    shares[i] = counts[i] > 0 ? std::max<std::size_t>(1, share) : 0;
  }
  std::size_t sum = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
  for (; sum > cells; --sum) --*std::ranges::max_element(shares);
  shares.back() += cells - sum;
  return shares;
}

void add_bar(Line& line, std::span<const Part> parts, std::size_t columns) {
  std::vector<double> counts;
  for (const Part& part : parts) counts.push_back(part.count);
  const std::vector<std::size_t> shares = share_out(counts, columns);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string filled;
    for (std::size_t cell = 0; cell < shares[i]; ++cell) filled += parts[i].fill;
    line.add(filled, parts[i].style);
  }
}

std::string sparkline(std::span<const std::optional<double>> values) {
  static constexpr std::string_view kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double max = 0;
  for (const auto& value : values) max = std::max(max, value.value_or(0));
  std::string text;
  for (const auto& value : values) {
    if (!value) {
      text += ' ';
      continue;
    }
    const double level = max > 0 ? *value / max * (std::size(kLevels) - 1) : 0;
    text += kLevels[static_cast<std::size_t>(std::clamp(std::lround(level), 0l, 7l))];
  }
  return text;
}

std::string decimal(std::optional<double> value) {
  if (!value) return "-";
  if (*value >= 100) return grouped(*value);
  return fmt::format("{:.{}f}", *value, *value >= 10 ? 1 : *value >= 1 ? 2 : *value > 0 ? 3 : 0);
}

std::string whole(std::optional<double> value) { return value ? grouped(*value) : "-"; }

std::string percent(std::optional<double> part, double all) {
  if (!part || all <= 0) return "-";
  return fmt::format("{:.{}f} %", 100 * *part / all, *part > 0 && *part < all ? 1 : 0);
}

}  // namespace nmc::cli
