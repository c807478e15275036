#include "cli/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "cli/chart_axis.h"
#include "cli/output.h"

namespace nmc::cli {
namespace {

constexpr double kCharWidth = 6.8;
constexpr double kBarHeight = 14, kBarPitch = 21, kLabelMax = 330, kWordsWidth = 270;
constexpr double kPlotLeft = 86, kPlotRight = 24, kPlotHeight = 250, kLegendPitch = 18;
constexpr double kPlotWidth = kChartWidth - kPlotLeft - kPlotRight;

constexpr std::array<const char*, kHues> kLight = {"#1f66ad", "#b8500f", "#2c7a4b", "#7d4bab",
                                                   "#7a6200", "#b3245e", "#00727a", "#555c66"};
constexpr std::array<const char*, kHues> kDark = {"#6fb1f0", "#f0945a", "#6cc792", "#bf95e8",
                                                  "#d9b93b", "#f07ba8", "#4fc4cc", "#aab2bd"};
constexpr std::array<const char*, kDashes> kDashArrays = {"none", "7 4", "2 3", "9 3 2 3", "4 4", "14 4"};
// Around 0, 0. More than hues, so that two series of one colour differ also where they are single points.
constexpr std::array<const char*, kMarkers> kMarkerPaths = {
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -4.5l4.5 8h-9z",
    "M0 -5l5 5l-5 5l-5 -5z",
    "M-4 -4l8 8M4 -4l-8 8",
    "M0 -5v10M-5 0h10",
    "M0 4.5l4.5 -8h-9z",
    "M-5 -2.5h10v5h-10z",
    "M-5 0l8 -4.5v9z",
    "M5 0l-8 -4.5v9z",
    "M-2.5 -5h5v10h-5z",
    "M-5 0h10M-3 -4l6 8M3 -4l-6 8",
};

double width_of(std::string_view text) { return static_cast<double>(display_width(text)) * kCharWidth; }

// Cut to `width`, with a sign that it was.
std::string fitted(const std::string& text, double width) {
  if (width_of(text) <= width) return text;
  const auto keep = static_cast<std::size_t>(width / kCharWidth) - 1;
  std::string cut;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && shown++ == keep) break;
    cut += text[i];
  }
  return cut + "…";
}

std::string words_of(const Figure& figure, std::string_view unit) {
  if (!figure.value) return figure.missing;
  std::string words = chart_number(*figure.value);
  if (!unit.empty()) words += fmt::format(" {}", unit);
  if (figure.low && figure.high) {
    words += fmt::format(" ({} to {})", chart_number(*figure.low), chart_number(*figure.high));
  }
  if (!figure.detail.empty()) words += ", " + figure.detail;
  return words;
}

std::string data_of(const Figure& figure) {
  std::string data = figure.value ? fmt::format(" data-value=\"{}\"", *figure.value) : "";
  if (figure.low && figure.high) data += fmt::format(" data-low=\"{}\" data-high=\"{}\"", *figure.low, *figure.high);
  return data;
}

class Drawing {
 public:
  double y = 0;  // how far down it is

  void text(double x, double at, std::string_view what, std::string_view kind) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, at, kind, xml_escaped(what));
  }
  void add(std::string_view elements) { out_ += elements; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// ---- bars ----

void add_whisker(Drawing& to, const Figure& figure, const AxisScale& scale, double left, double width, double middle) {
  if (!figure.low || !figure.high) return;
  const double from = left + scale.at(*figure.low) * width, until = left + scale.at(*figure.high) * width;
  to.add(fmt::format("<path class=\"whisker\" d=\"M{0:.1f} {2:.1f}v6M{0:.1f} {3:.1f}H{1:.1f}M{1:.1f} {2:.1f}v6\"/>\n",
                     from, until, middle - 3, middle));
}

Drawn draw_bars(const BarChart& chart) {
  double label_width = 60;
  std::vector<double> values;
  for (const Bar& bar : chart.bars) {
    label_width = std::max(label_width, width_of(bar.label) + 8);
    if (bar.figure.value) values.push_back(*bar.figure.value);
    if (bar.figure.high) values.push_back(*bar.figure.high);
  }
  label_width = std::min(label_width, kLabelMax);
  const double left = label_width + 14, width = kChartWidth - left - kWordsWidth;
  const AxisScale scale({.name = chart.unit, .log = chart.log}, values);
  const double zero = chart.log ? 0 : scale.at(0);
  Drawing to;
  for (const Bar& bar : chart.bars) {
    const std::string words = words_of(bar.figure, chart.unit);
    to.add(fmt::format("<g class=\"mark\" data-label=\"{}\"{}><title>{}</title>\n", xml_escaped(bar.label),
                       data_of(bar.figure), xml_escaped(bar.label + ": " + words)));
    to.text(left - 8, to.y + 11, fitted(bar.label, label_width), "end");
    double end = left;
    if (bar.figure.value) {
      const double place = scale.at(*bar.figure.value), from = std::min(place, zero), until = std::max(place, zero);
      to.add(fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" class=\"f{}\"/>\n",
                         left + from * width, to.y, std::max((until - from) * width, 0.5), kBarHeight,
                         bar.hue % kHues));
      add_whisker(to, bar.figure, scale, left, width, to.y + kBarHeight / 2);
      end = left + width * std::max(until, bar.figure.high ? scale.at(*bar.figure.high) : 0);
    }
    const double room = kChartWidth - end - 10;
    to.text(end + 6, to.y + 11, fitted(words, room), bar.figure.value ? "value" : "value missing");
    to.add("</g>\n");
    to.y += kBarPitch;
  }
  to.add(fmt::format("<path class=\"axis\" d=\"M{0:.1f} 0V{1:.1f}\"/>\n", left + zero * width, to.y));
  if (!values.empty()) {
    to.add(fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, to.y, left + width));
    double free = left - 100;
    for (const Tick& tick : scale.ticks(false)) {
      const double x = left + tick.at * width;
      if (x - width_of(tick.label) / 2 < free) continue;
      to.add(fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, to.y));
      to.text(x, to.y + 17, tick.label, "middle");
      free = x + width_of(tick.label) / 2 + 8;
    }
    const std::string unit = chart.unit + (chart.log ? ", logarithmic" : "");
    to.text(left + width + 14, to.y + 17, unit, "value");
    to.y += 26;
  }
  return {to.take(), to.y};
}

// ---- lines ----

std::string marker(std::size_t hue, double x, double y) {
  return fmt::format("<path class=\"s{0} f{0} marker\" transform=\"translate({1:.1f} {2:.1f})\" d=\"{3}\"/>",
                     hue % kHues, x, y, kMarkerPaths[hue % kMarkers]);
}

void add_legend(Drawing& to, const LineChart& chart) {
  double x = kPlotLeft;
  for (const Series& series : chart.series) {
    const double width = 46 + width_of(series.label) + 14;
    if (x + width > kChartWidth && x > kPlotLeft) x = kPlotLeft, to.y += kLegendPitch;
    to.add(fmt::format("<path class=\"line s{}\" stroke-dasharray=\"{}\" d=\"M{:.1f} {:.1f}h36\"/>\n",
                       series.hue % kHues, kDashArrays[series.dash % kDashes], x, to.y + 8));
    if (series.marked) to.add(marker(series.hue, x + 18, to.y + 8) + "\n");
    to.text(x + 42, to.y + 12, fitted(series.label, kChartWidth - x - 50), "value");
    x += width;
  }
  to.y += kLegendPitch + 6;
}

void add_axes(Drawing& to, const LineChart& chart, const AxisScale& across, const AxisScale& up, double bottom) {
  for (const Tick& tick : up.ticks(false)) {
    const double y = bottom - tick.at * kPlotHeight;
    to.add(fmt::format("<path class=\"grid\" d=\"M{} {:.1f}h{}\"/>\n", kPlotLeft, y, kPlotWidth));
    to.text(kPlotLeft - 8, y + 4, tick.label, "end");
  }
  to.add(fmt::format("<path class=\"axis\" d=\"M{0} {1:.1f}V{2:.1f}H{3}\"/>\n", kPlotLeft, bottom - kPlotHeight, bottom,
                     kPlotLeft + kPlotWidth));
  double free = 0;
  for (const Tick& tick : across.ticks(true)) {
    const double x = kPlotLeft + tick.at * kPlotWidth;
    const double from = std::min(x - width_of(tick.label) / 2, kChartWidth - width_of(tick.label));
    to.add(fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, bottom));
    if (from < free) continue;
    to.text(from, bottom + 17, tick.label, "value");
    free = from + width_of(tick.label) + 8;
  }
  const auto name = [](const Axis& axis) { return axis.name + (axis.log ? ", logarithmic" : ""); };
  to.text(kPlotLeft + kPlotWidth / 2, bottom + 35, name(chart.x), "middle");
  to.add(fmt::format("<text transform=\"translate(14 {:.1f}) rotate(-90)\" class=\"middle\">{}</text>\n",
                     bottom - kPlotHeight / 2, xml_escaped(name(chart.y))));
}

void add_series(Drawing& to, const LineChart& chart, const Series& series, const AxisScale& across, const AxisScale& up,
                double bottom) {
  const auto x_of = [&](const Series::Point& point) { return kPlotLeft + across.at(point.x) * kPlotWidth; };
  const auto y_of = [&](double value) { return bottom - up.at(value) * kPlotHeight; };
  std::string path, marks;
  bool pen_down = false;
  for (const Series::Point& point : series.points) {
    const Figure& figure = point.figure;
    if (!figure.value) {  // a gap
      pen_down = false;
      continue;
    }
    const double x = x_of(point), y = y_of(*figure.value);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
    pen_down = true;
    if (!series.marked) continue;
    marks += fmt::format("<g class=\"mark\" data-label=\"{}\" data-x=\"{}\"{}><title>{}</title>",
                         xml_escaped(series.label), point.x, data_of(figure),
                         xml_escaped(fmt::format("{}; {} {}; {}: {}", series.label, chart.x.name, chart_number(point.x),
                                                 chart.y.name, words_of(figure, ""))));
    if (figure.low && figure.high) {
      marks +=
          fmt::format("<path class=\"whisker\" d=\"M{0:.1f} {2:.1f}h6M{1:.1f} {2:.1f}V{3:.1f}M{0:.1f} {3:.1f}h6\"/>",
                      x - 3, x, y_of(*figure.low), y_of(*figure.high));
    }
    marks += marker(series.hue, x, y) + "</g>\n";
  }
  to.add(fmt::format(
      "<path class=\"line s{}\" stroke-dasharray=\"{}\" data-label=\"{}\" d=\"{}\"><title>{}</title></path>\n",
      series.hue % kHues, kDashArrays[series.dash % kDashes], xml_escaped(series.label), path,
      xml_escaped(series.label)));
  to.add(marks);
}

// What isn't there, a line a series and reason.
void add_missing(Drawing& to, const LineChart& chart) {
  for (const Series& series : chart.series) {
    std::map<std::string, std::size_t> reasons;
    for (const Series::Point& point : series.points) {
      if (!point.figure.value) ++reasons[point.figure.missing];
    }
    for (const auto& [reason, count] : reasons) {
      const std::string line = fmt::format(
          "{}: {}{}", series.label, reason,
          count == series.points.size() ? "" : fmt::format(", at {} of {} points", count, series.points.size()));
      to.add("<g class=\"mark\">");
      to.text(kPlotLeft, to.y + 12, fitted(line, kChartWidth - kPlotLeft), "value missing");
      to.add("</g>");
      to.y += kLegendPitch;
    }
  }
}

Drawn draw_lines(const LineChart& chart) {
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    for (const Series::Point& point : series.points) {
      if (!point.figure.value) continue;
      xs.push_back(point.x);
      ys.push_back(*point.figure.value);
      if (point.figure.low) ys.push_back(*point.figure.low);
      if (point.figure.high) ys.push_back(*point.figure.high);
    }
  }
  Drawing to;
  if (!ys.empty()) {
    const AxisScale across(chart.x, xs), up(chart.y, ys);
    add_legend(to, chart);
    const double bottom = to.y + kPlotHeight;
    add_axes(to, chart, across, up, bottom);
    for (const Series& series : chart.series) add_series(to, chart, series, across, up, bottom);
    to.y = bottom + 44;
  }
  add_missing(to, chart);
  return {to.take(), to.y};
}

// ---- a document ----

constexpr double kMargin = 14;

// Breaks at spaces.
void add_wrapped(Drawing& to, std::string_view words, std::string_view kind) {
  constexpr double kLine = 16;
  std::string line;
  const auto flush = [&] {
    to.text(0, to.y + 12, line, kind);
    to.y += kLine;
    line.clear();
  };
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    const std::string word(words.substr(0, end));
    if (!line.empty() && width_of(line + " " + word) > kChartWidth) flush();
    line += (line.empty() ? "" : " ") + word;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  if (!line.empty()) flush();
}

void add_section(Drawing& to, const ChartSection& section) {
  to.text(0, to.y + 16, section.title, "head");
  to.y += 28;
  for (const std::string& fact : section.facts) add_wrapped(to, fact, "value");
  to.y += 10;
  for (const Chart& chart : section.charts) {
    to.text(0, to.y + 15, chart_title(chart), "title");
    to.y += 28;
    const Drawn drawn = draw(chart);
    to.add(fmt::format("<g class=\"chart\" transform=\"translate(0 {:.1f})\">\n{}</g>\n", to.y, drawn.elements));
    to.y += drawn.height + 4;
    for (const std::string& line : section.origin) add_wrapped(to, line, "origin");
    to.y += 22;
  }
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::string_view three = text.substr(i, 3); three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {
      safe += "\xef\xbf\xbd";  // XML has no way to say U+FFFE and U+FFFF either
      i += 2;
      continue;
    }
    const char c = text[i];
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\t':
      case '\n': safe += c; break;
      default: safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;  // XML has no way to say them
    }
  }
  return safe;
}

std::string chart_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e15 || (size < 1e-3 && size > 0)) return fmt::format("{:.3g}", value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

const std::string& chart_title(const Chart& chart) {
  return std::visit([](const auto& one) -> const std::string& { return one.title; }, chart);
}

std::string chart_style() {
  std::string style =
      "svg text{font:12px system-ui,sans-serif;fill:#222}svg .title{font-weight:600;font-size:14px}"
      "svg .head{font-weight:600;font-size:17px}svg .end{text-anchor:end}svg .middle{text-anchor:middle}"
      "svg .origin{font-size:11px;fill:#555}svg .missing{font-style:italic}"
      ".axis,.grid,.whisker,.line{fill:none}.axis{stroke:#777}.grid{stroke:#ddd}.whisker{stroke:#222}"
      ".line{stroke-width:1.8}.marker{stroke-width:1.6}.ground{fill:#fff}";
  for (std::size_t hue = 0; hue < kHues; ++hue)
    style += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", hue, kLight[hue]);
  style +=
      "@media (prefers-color-scheme:dark){svg text{fill:#ddd}svg .origin{fill:#aaa}.axis{stroke:#888}"
      ".grid{stroke:#3a3d42}.whisker{stroke:#eee}.ground{fill:#181a1d}";
  for (std::size_t hue = 0; hue < kHues; ++hue)
    style += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", hue, kDark[hue]);
  return style + "}";
}

Drawn draw(const Chart& chart) {
  if (const auto* bars = std::get_if<BarChart>(&chart)) return draw_bars(*bars);
  return draw_lines(std::get<LineChart>(chart));
}

std::string charts_svg(std::string_view title, std::span<const ChartSection> sections) {
  Drawing to;
  for (const ChartSection& section : sections) add_section(to, section);
  const double width = kChartWidth + 2 * kMargin, height = to.y + 2 * kMargin;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n<rect class=\"ground\" width=\"100%\" "
      "height=\"100%\"/>\n<g transform=\"translate({4:.0f} {4:.0f})\">\n{5}</g>\n</svg>\n",
      width, height, xml_escaped(title), chart_style(), kMargin, to.take());
}

}  // namespace nmc::cli
