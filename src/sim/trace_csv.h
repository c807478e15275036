// The lines of a trace as comma-separated values: see trace_reader.h for the columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/line_source.h"
#include "sim/trace_assembler.h"

namespace nmc::sim {

// Fields as RFC 4180 quotes them, but none goes over a line's end. Not thread-safe.
class TraceCsv {
 public:
  // The line of names.
  Result<void> read_header(std::string_view line, const LineSource& source);
  Result<void> add_line(std::string_view line, const LineSource& source, TraceAssembler& assembler);

 private:
  static constexpr int kColumns = 7;

  Result<void> split(std::string_view line, const LineSource& source);
  Result<std::int64_t> whole(int column, const LineSource& source, std::int64_t high, std::int64_t absent) const;

  int places_[kColumns] = {-1, -1, -1, -1, -1, -1, -1};  // of the columns in the file; -1: not there
  std::size_t columns_ = 0;                              // of the file
  std::vector<std::string> fields_;                      // of the line at hand
};

}  // namespace nmc::sim
