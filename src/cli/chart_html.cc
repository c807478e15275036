// The page of charts.
#include <fmt/core.h>

#include "cli/chart.h"

namespace nmc::cli {
namespace {

constexpr const char* kPageStyle =
    ":root{color-scheme:light dark}body{margin:1rem auto;padding:0 1rem;max-width:70rem;font:1rem/1.45 "
    "system-ui,sans-serif;background:#fff;color:#222}h1{font-size:1.5rem}h2{font-size:1.25rem}h3{font-size:1.05rem;"
    "margin:0 0 .5rem}figure{margin:2rem 0}figcaption{font-size:.85rem}.scroll{overflow-x:auto}"
    // In rem, so that a reader with larger text gets a larger chart.
    ".scroll svg{display:block;width:57.5rem;height:auto}table{border-collapse:collapse;font-size:.85rem}"
    "td,th{padding:.1rem .6rem;text-align:left;border-bottom:1px solid #8886}td.n{text-align:right}"
    "section>p{margin:.2rem 0}pre{overflow-x:auto;font-size:.8rem}@media "
    "(prefers-color-scheme:dark){body{background:#181a1d;color:#ddd}}";

std::string number_cell(const std::optional<double>& value) {
  return value ? fmt::format("<td class=\"n\">{}</td>", *value) : "<td></td>";
}

std::string figure_cells(const Figure& figure) {
  const std::string value =
      figure.value ? number_cell(figure.value) : fmt::format("<td>{}</td>", xml_escaped(figure.missing));
  return value + number_cell(figure.low) + number_cell(figure.high) +
         fmt::format("<td>{}</td></tr>\n", xml_escaped(figure.detail));
}

std::string rows_of(const BarChart& chart) {
  std::string rows = fmt::format(
      "<tr><th scope=\"col\">what</th><th scope=\"col\">{}</th><th scope=\"col\">low</th><th scope=\"col\">high</th>"
      "<th scope=\"col\">remark</th></tr>\n",
      xml_escaped(chart.unit.empty() ? "value" : chart.unit));
  for (const Bar& bar : chart.bars) {
    rows += fmt::format("<tr><th scope=\"row\">{}</th>", xml_escaped(bar.label)) + figure_cells(bar.figure);
  }
  return rows;
}

std::string rows_of(const LineChart& chart) {
  std::string rows = fmt::format(
      "<tr><th scope=\"col\">series</th><th scope=\"col\">{}</th><th scope=\"col\">{}</th><th scope=\"col\">low</th>"
      "<th scope=\"col\">high</th><th scope=\"col\">remark</th></tr>\n",
      xml_escaped(chart.x.name), xml_escaped(chart.y.name));
  for (const Series& series : chart.series) {
    for (const Series::Point& point : series.points) {
      rows += fmt::format("<tr><th scope=\"row\">{}</th>", xml_escaped(series.label)) + number_cell(point.x) +
              figure_cells(point.figure);
    }
  }
  return rows;
}

std::string figure_of(const ChartSection& section, const Chart& chart) {
  const Drawn drawn = draw(chart);
  std::string origin;
  for (const std::string& line : section.origin) origin += fmt::format("{}<br>", xml_escaped(line));
  const std::string title = xml_escaped(chart_title(chart));
  return fmt::format(
      "<figure>\n<h3>{0}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{0}\"><svg "
      "viewBox=\"0 0 {1} {2:.0f}\" role=\"img\" aria-label=\"{0}\">\n{3}</svg>"
      "</div>\n<figcaption>{4}</figcaption>\n<details><summary>Its numbers</summary>\n<div "
      "class=\"scroll\"><table>\n{5}</table></div></details>\n</figure>\n",
      title, kChartWidth, drawn.height + 6, drawn.elements, origin,
      std::visit([](const auto& one) { return rows_of(one); }, chart));
}

std::string section_of(const ChartSection& section) {
  std::string html = fmt::format("<section>\n<h2>{}</h2>\n", xml_escaped(section.title));
  for (const std::string& fact : section.facts) html += fmt::format("<p>{}</p>\n", xml_escaped(fact));
  for (const Chart& chart : section.charts) html += figure_of(section, chart);
  if (!section.text.empty()) html += fmt::format("<pre>{}</pre>\n", xml_escaped(section.text));
  return html + "</section>\n";
}

}  // namespace

std::string charts_html(std::string_view title, std::span<const ChartSection> sections) {
  std::string body;
  for (const ChartSection& section : sections) body += section_of(section);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{0}</h1>\n{3}</main>\n</body>\n</html>\n",
      xml_escaped(title), kPageStyle, chart_style(), body);
}

}  // namespace nmc::cli
