// The charts of a simulation: SVG with its own style, no script, nothing from elsewhere.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "cli/simulate_report.h"

namespace nmc::cli {
namespace {

constexpr int kWidth = 920, kLabelWidth = 190, kBarHeight = 16, kBarGap = 8, kPlotHeight = 170, kTitleHeight = 34;
constexpr int kPlotWidth = kWidth - kLabelWidth - 90;
constexpr std::size_t kBarsMax = 40;
constexpr const char* kColors[] = {"#2f6fb4", "#c8642c", "#3d8b57", "#8659a8"};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

// Grows downwards.
class Drawing {
 public:
  void text(double x, double y, std::string_view what, std::string_view kind) {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, kind, escaped(what));
  }
  void title(std::string_view what) {
    text(12, y_ + 22, what, "title");
    y_ += kTitleHeight;
  }

  void note(std::string_view what) {
    text(12, y_ + 6, what, "value");
    y_ += 22;
  }

  struct Bar {
    std::string label;
    double value;
    std::string words;
    int color;
  };
  void bars(const std::vector<Bar>& bars, double most) {
    for (const Bar& bar : bars) {
      const double width = most > 0 ? bar.value / most * kPlotWidth : 0;
      text(kLabelWidth - 8, y_ + 12, bar.label, "label");
      body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", kLabelWidth, y_,
                           std::max(width, 0.5), kBarHeight, kColors[bar.color]);
      text(kLabelWidth + width + 6, y_ + 12, bar.words, "value");
      y_ += kBarHeight + kBarGap;
    }
    y_ += 14;
  }

  struct Line {
    std::string label;
    const std::vector<double>* values;
    int color;
  };
  void lines(const std::vector<Line>& lines, double interval_s) {
    double most = 1;
    std::size_t points = 2;
    for (const Line& line : lines) {
      for (const double value : *line.values) most = std::max(most, value);
      points = std::max(points, line.values->size());
    }
    const double bottom = y_ + kPlotHeight;
    body_ += fmt::format("<path d=\"M{0} {1} V{2} H{3}\" class=\"axis\"/>\n", kLabelWidth, y_, bottom,
                         kLabelWidth + kPlotWidth);
    text(kLabelWidth - 8, y_ + 10, fmt::format("{:.0f}", most), "label");
    text(kLabelWidth - 8, bottom, "0", "label");
    text(kLabelWidth, bottom + 16, "0 s", "value");
    text(kLabelWidth + kPlotWidth - 60, bottom + 16, fmt::format("{:.0f} s", static_cast<double>(points) * interval_s),
         "value");
    double legend = y_ + 10;
    for (const Line& line : lines) {
      std::string path;
      for (std::size_t i = 0; i < line.values->size(); ++i) {
        const double x = kLabelWidth + kPlotWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(points);
        path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : " L", x, bottom - (*line.values)[i] / most * kPlotHeight);
      }
      body_ +=
          fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, kColors[line.color]);
      body_ += fmt::format("<rect x=\"12\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", legend - 9,
                           kColors[line.color]);
      text(28, legend, line.label, "value");
      legend += 18;
    }
    y_ = bottom + 34;
  }

  std::string svg() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
        "role=\"img\">\n<style>text{{font:12px sans-serif;fill:#222}}.title{{font-weight:600;font-size:14px}}"
        ".label{{text-anchor:end}}.axis{{fill:none;stroke:#888}}.ground{{fill:#fff}}@media (prefers-color-scheme:dark)"
        "{{text{{fill:#ddd}}.ground{{fill:#181a1d}}}}</style>\n<rect class=\"ground\" width=\"100%\" "
        "height=\"100%\"/>\n{2}"
        "</svg>\n",
        kWidth, y_ + 8, body_);
  }

 private:
  std::string body_;
  double y_ = 0;
};

}  // namespace

std::string chart_svg(const sim::Trace& trace, const Simulation& simulation) {
  Drawing drawing;
  drawing.title("Simulation, no measurement");
  drawing.note(workload_words(trace));
  std::span<const SimulationRow> rows(simulation.rows);
  rows = rows.first(std::min(rows.size(), kBarsMax));
  const auto label = [](const SimulationRow& row) {
    return fmt::format("{}, {} blocks", row.policy, capacity_text(row.capacity_blocks));
  };
  std::vector<Drawing::Bar> bars;
  for (const SimulationRow& row : rows) {
    const double part = row.hits.input_tokens == 0
                            ? 0
                            : static_cast<double>(row.hits.hit_tokens) / static_cast<double>(row.hits.input_tokens);
    bars.push_back({label(row), part, fmt::format("{:.2f} %", part * 100), 0});
  }
  drawing.title(rows.size() < simulation.rows.size() ? fmt::format("Token hit rate, first {} rows", rows.size())
                                                     : "Token hit rate");
  drawing.bars(bars, 1);
  if (simulation.instant) return drawing.svg();

  using Pick = double (*)(const sim::TimedResult&);
  const std::array<std::pair<const char*, Pick>, 2> times = {{
      {"Time to the first token, P50", [](const sim::TimedResult& timed) { return timed.ttft_ms.p50; }},
      {"Time to the first token, P99", [](const sim::TimedResult& timed) { return timed.ttft_ms.p99; }},
  }};
  for (const auto& [title, pick] : times) {
    bars.clear();
    double most = 0;
    for (const SimulationRow& row : rows) {
      bars.push_back({label(row), pick(*row.timed), fmt::format("{:.0f} ms", pick(*row.timed)), 1});
      most = std::max(most, pick(*row.timed));
    }
    drawing.title(title);
    drawing.bars(bars, most);
  }
  for (const SimulationRow& row : rows.first(std::min<std::size_t>(rows.size(), 4))) {
    std::vector<Drawing::Line> lines;
    for (std::size_t s = 0; s < row.timed->stations.size(); ++s) {
      lines.push_back({row.timed->stations[s].name, &row.timed->stations[s].waiting, static_cast<int>(s)});
    }
    drawing.title("Jobs that wait over time: " + label(row));
    drawing.lines(lines, row.timed->interval_s);
  }
  return drawing.svg();
}

std::string chart_html(const sim::Trace& trace, const Simulation& simulation) {
  std::string text = report_of(trace, simulation).text;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>nano-mooncake simulation</title>\n<style>:root{{color-scheme:light "
      "dark}}body{{margin:1em;font:14px sans-serif}}pre{{overflow:auto}}svg{{max-width:100%;height:auto}}</style>\n"
      "</head>\n<body>\n{}<pre>{}</pre>\n</body>\n</html>\n",
      chart_svg(trace, simulation), escaped(text));
}

}  // namespace nmc::cli
