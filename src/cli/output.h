// Results of a command: rows for people, for spreadsheets and for programs, to standard output or to a file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/settings.h"

namespace nmc::cli {

struct Cell {
  Cell(std::string cell_text) : text(std::move(cell_text)) {}  // NOLINT: a row reads as a list of values
  Cell(const char* cell_text) : text(cell_text) {}             // NOLINT
  Cell(std::uint64_t number) : text(std::to_string(number)), is_number(true) {}  // NOLINT
  Cell(double number, int decimals);

  std::string text;
  bool is_number = false;  // aligned to the right
};

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as `columns`
};

enum class Format { kTable, kJson, kCsv, kMarkdown };

// Columns padded to equal width, two spaces between them.
std::string format_table(const Table& table);
// RFC 4180: a line a row, fields quoted where needed.
std::string format_csv(const Table& table);
std::string format_markdown(const Table& table);

// Rows become columns: for few rows of many columns.
Table transposed(const Table& table);

// Columns that a terminal shows: characters, not bytes.
std::size_t display_width(std::string_view text);

// The text on one line: control bytes, which would break a table or drive the terminal, are escaped.
std::string printable(std::string_view text);

// What a command has to say, for programs, for people and for spreadsheets.
struct Report {
  Json json;         // with "schema" as its first member
  std::string text;  // for --format table: all of it, where the table alone isn't what a person wants to see
  Table table;
};

std::string render_report(const Report& report, Format format);

// Renders by --format and writes to --output or standard output. kIo when that can't be written.
Result<void> write_report(const Report& report, const Settings& settings);

// For what is judged or explained: JSON to --output, and by --format to standard output, unless --quiet.
Result<void> write_verdict(const Report& report, const Settings& settings);

Result<void> write_standard_output(std::string_view text);

}  // namespace nmc::cli
