// Charts as data, and their drawing: SVG with its own style, no script, nothing from elsewhere, light or dark as the
// reader has it, equal bytes for equal charts. A series is told by marker and dashes as well as by colour, a bar by its
// label. Each mark is a `g` with class "mark", its numbers in `data-` attributes and in words in its `title`.
// All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace nmc::cli {

inline constexpr double kChartNumberMax = 1e30;  // numbers in charts lie within +- this
inline constexpr std::size_t kHues = 8, kDashes = 6, kMarkers = 12;

// What is drawn at one place. Without a value nothing is drawn there, and `missing` is said.
struct Figure {
  std::optional<double> value;
  std::optional<double> low = {}, high = {};  // of a whisker around it
  std::string missing = {};                   // "not_available", or with a reason behind it
  std::string detail = {};                    // "n = 300", shown with the value
};

struct Bar {
  std::string label;
  Figure figure;
  std::size_t hue = 0;
};

struct BarChart {
  std::string title;
  std::string unit;
  std::vector<Bar> bars;
  bool log = false;
};

struct Axis {
  std::string name;  // with its unit in parentheses, if it has one
  bool log = false;  // where values span decades; those that aren't above 0 then lie at its lower end
  bool bytes = false;
};

struct Series {
  std::string label;
  std::size_t hue = 0, dash = 0;  // any number; colours and markers go by the first, and repeat as dashes do
  struct Point {
    double x = 0;
    Figure figure;
  };
  std::vector<Point> points = {};  // in the order of x
  bool marked = true;              // a marker at each point; false for long series in time
};

struct LineChart {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

using Chart = std::variant<BarChart, LineChart>;

// Charts with one origin.
struct ChartSection {
  std::string title;
  std::vector<std::string> facts = {};   // lines above the charts
  std::vector<std::string> origin = {};  // lines under each chart: kind of evidence, build
  std::vector<Chart> charts = {};
  std::string text = {};  // of a page, below the charts, as it stands
};

std::string charts_svg(std::string_view title, std::span<const ChartSection> sections);
// A page: the same charts, and under each its numbers as a table.
std::string charts_html(std::string_view title, std::span<const ChartSection> sections);

// Four figures that count: "12.34", "48213", "1.2e-05".
std::string chart_number(double value);

// ---- for the two above ----

std::string xml_escaped(std::string_view text);
const std::string& chart_title(const Chart& chart);
// Of elements of drawings, with the colours of light and dark.
std::string chart_style();
// A chart from y = 0 down, without its title and origin.
struct Drawn {
  std::string elements;
  double height = 0;
};
inline constexpr int kChartWidth = 920;
Drawn draw(const Chart& chart);

}  // namespace nmc::cli
