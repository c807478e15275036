#include "sim/trace_reader.h"

#include <optional>

#include "sim/line_source.h"
#include "sim/trace_assembler.h"
#include "sim/trace_csv.h"
#include "sim/trace_json.h"

namespace nmc::sim {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

Result<Trace> read_lines(LineSource& source, const TraceOptions& options) {
  NMC_REQUIRE(options.block_tokens > 0, "block_tokens={}", options.block_tokens);
  TraceAssembler assembler(source.name(), options);
  std::optional<TraceJson> json;
  std::optional<TraceCsv> csv;
  for (;;) {
    std::string_view line;
    NMC_ASSIGN_OR_RETURN(const bool more, source.next(&line));
    if (!more) return std::move(assembler).finish();
    if (is_blank(line)) continue;
    if (json) {
      NMC_RETURN_IF_ERROR(json->add_line(line, source, assembler));
    } else if (csv) {
      NMC_RETURN_IF_ERROR(csv->add_line(line, source, assembler));
    } else if (line[line.find_first_not_of(" \t")] == '{') {
      NMC_RETURN_IF_ERROR(json.emplace().add_line(line, source, assembler));
    } else {
      NMC_RETURN_IF_ERROR(csv.emplace().read_header(line, source));
    }
  }
}

}  // namespace

Result<Trace> read_trace(const Path& path, const TraceOptions& options) {
  NMC_ASSIGN_OR_RETURN(LineSource source, LineSource::open(path));
  return read_lines(source, options);
}

Result<Trace> parse_trace(std::string_view bytes, std::string_view name, const TraceOptions& options) {
  LineSource source = LineSource::over(bytes, std::string(name));
  return read_lines(source, options);
}

}  // namespace nmc::sim
