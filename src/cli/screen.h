// Lines of text with colours, as wide as a terminal is.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::cli {

// Blue is KV that is reused, orange is work that is done, as on the page of the server.
enum class Style { kPlain, kBold, kDim, kBlue, kDeepBlue, kOrange, kPurple, kGreen, kRed };

// Built from left to right. What comes from outside is made printable: it can't drive the terminal.
class Line {
 public:
  Line& add(std::string_view text, Style style = Style::kPlain);
  // Padded to `width` columns, on the left or on the right.
  Line& left(std::string_view text, std::size_t width, Style style = Style::kPlain);
  Line& right(std::string_view text, std::size_t width, Style style = Style::kPlain);

  std::size_t width() const;
  // Cut to `columns`; escape sequences only with `colours`.
  std::string render(std::size_t columns, bool colours) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };
  std::vector<Piece> pieces_;
};

std::string render_lines(std::span<const Line> lines, std::size_t columns, bool colours);

// How many of `cells` each of `counts` gets: its share, but never none of what is there. The last one takes what is
// left.
std::vector<std::size_t> share_out(std::span<const double> counts, std::size_t cells);

struct Part {
  double count;
  Style style;
  std::string_view fill;  // one column: parts differ without colours, too
};
// A bar of `columns`, shared out among the parts.
void add_bar(Line& line, std::span<const Part> parts, std::size_t columns);

// "▁▃█", one column a value, scaled to the largest; a space where there is none.
std::string sparkline(std::span<const std::optional<double>> values);

// Three figures that count ("0.088", "1.25", "34.5", "1,234"); "-" for nothing.
std::string decimal(std::optional<double> value);
std::string whole(std::optional<double> value);               // "1,234"
std::string percent(std::optional<double> part, double all);  // "92.2 %"

}  // namespace nmc::cli
