#include "cli/output.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/files.h"
#include "base/syscall.h"

namespace nmc::cli {
namespace {

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string spaces(width - std::min(width, display_width(text)), ' ');
  return right ? spaces + text : text + spaces;
}

bool column_is_number(const Table& table, std::size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].is_number; });
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string markdown_field(const std::string& text) {
  std::string escaped;
  for (const char c : printable(text)) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void check_shape(const Table& table) {
  for (const auto& row : table.rows) {
    NMC_REQUIRE(row.size() == table.columns.size(), "cells={} columns={}", row.size(), table.columns.size());
  }
}

Format parse_format(const std::string& name) {
  return name == "json"       ? Format::kJson
         : name == "csv"      ? Format::kCsv
         : name == "markdown" ? Format::kMarkdown
                              : Format::kTable;
}

}  // namespace

Cell::Cell(double number, int decimals) : text(fmt::format("{:.{}f}", number, decimals)), is_number(true) {}

std::string format_table(const Table& table) {
  check_shape(table);
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = display_width(table.columns[c]);
    for (const auto& row : table.rows) width = std::max(width, display_width(printable(row[c].text)));
    widths.push_back(width);
  }
  std::string result;
  const auto add_line = [&](auto&& text_of) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      line += (c == 0 ? "" : "  ") + pad(text_of(c), widths[c], column_is_number(table, c));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + '\n';
  };
  add_line([&](std::size_t c) { return table.columns[c]; });
  for (const auto& row : table.rows) add_line([&](std::size_t c) { return printable(row[c].text); });
  return result;
}

std::string format_csv(const Table& table) {
  check_shape(table);
  std::string result;
  for (std::size_t c = 0; c < table.columns.size(); ++c) result += (c == 0 ? "" : ",") + csv_field(table.columns[c]);
  result += "\r\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) result += (c == 0 ? "" : ",") + csv_field(row[c].text);
    result += "\r\n";
  }
  return result;
}

std::string format_markdown(const Table& table) {
  check_shape(table);
  std::string result = "|";
  for (const std::string& column : table.columns) result += fmt::format(" {} |", markdown_field(column));
  result += "\n|";
  for (std::size_t c = 0; c < table.columns.size(); ++c) result += column_is_number(table, c) ? " ---: |" : " --- |";
  result += '\n';
  for (const auto& row : table.rows) {
    result += '|';
    for (const Cell& cell : row) result += fmt::format(" {} |", markdown_field(cell.text));
    result += '\n';
  }
  return result;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result;
}

Table transposed(const Table& table) {
  check_shape(table);
  Table result;
  if (table.columns.empty()) return result;
  result.columns.push_back(table.columns[0]);
  for (const auto& row : table.rows) result.columns.push_back(row[0].text);
  for (std::size_t c = 1; c < table.columns.size(); ++c) {
    std::vector<Cell>& line = result.rows.emplace_back();
    line.emplace_back(table.columns[c]);
    for (const auto& row : table.rows) line.push_back(row[c]);
  }
  return result;
}

std::string render_report(const Report& report, Format format) {
  switch (format) {
    case Format::kJson: return dump_json_pretty(report.json) + "\n";
    case Format::kCsv: return format_csv(report.table);
    case Format::kMarkdown: return format_markdown(report.table);
    case Format::kTable: return report.text.empty() ? format_table(report.table) : report.text;
  }
  return "";
}

Result<void> write_report(const Report& report, const Settings& settings) {
  const std::string text = render_report(report, parse_format(settings.text("format")));
  if (settings.has("output")) return write_file_atomic(settings.text("output"), text);
  return write_standard_output(text);
}

Result<void> write_verdict(const Report& report, const Settings& settings) {
  if (settings.has("output"))
    NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), render_report(report, Format::kJson)));
  if (settings.on("quiet")) return {};
  return write_standard_output(render_report(report, parse_format(settings.text("format"))));
}

Result<void> write_standard_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) return Failure(os_error("write", "standard output"));
  return {};
}

}  // namespace nmc::cli
