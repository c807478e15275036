#include "cli/output.h"

#include <gtest/gtest.h>

namespace nmc::cli {
namespace {

Table sample() {
  return {.columns = {"name", "count"},
          .rows = {{"plain", Cell(std::uint64_t{7})},
                   {"a \"b\", c|d\n\x1b[0m", Cell(1.25, 1)},
                   {"h\u00e9", Cell(std::uint64_t{12345})}}};
}

TEST(Output, TableAlignsColumnsAndKeepsCellsOnTheirLine) {
  EXPECT_EQ(format_table(sample()),
            "name                 count\n"
            "plain                    7\n"
            "a \"b\", c|d\\n\\x1b[0m    1.2\n"
            "h\u00e9                   12345\n");
}

TEST(Output, CsvQuotesWhereNeeded) {
  EXPECT_EQ(format_csv(sample()), "name,count\r\nplain,7\r\n\"a \"\"b\"\", c|d\n\x1b[0m\",1.2\r\nh\u00e9,12345\r\n");
}

TEST(Output, MarkdownEscapesBars) {
  EXPECT_EQ(format_markdown({.columns = {"a", "n"}, .rows = {{"x|y", Cell(std::uint64_t{1})}}}),
            "| a | n |\n| --- | ---: |\n| x\\|y | 1 |\n");
}

TEST(Output, TransposedTurnsRowsIntoColumns) {
  const Table table = {.columns = {"run", "ms", "source"},
                       .rows = {{"first", Cell(2.0, 1), "none"}, {"second", Cell(0.5, 1), "dram"}}};
  EXPECT_EQ(format_csv(transposed(table)), "run,first,second\r\nms,2.0,0.5\r\nsource,none,dram\r\n");
}

TEST(Output, TextIsForPeopleOnly) {
  const Report report{.json = {{"schema", "x/v1"}}, .text = "hello\n", .table = {.columns = {"a"}, .rows = {{"b"}}}};
  EXPECT_EQ(render_report(report, Format::kTable), "hello\n");
  EXPECT_EQ(render_report(report, Format::kCsv), "a\r\nb\r\n");
  EXPECT_EQ(render_report(report, Format::kJson), "{\n  \"schema\": \"x/v1\"\n}\n");
}

}  // namespace
}  // namespace nmc::cli
