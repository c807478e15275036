// A line of a trace as a JSON object: see trace_reader.h for the fields.
#pragma once

#include <memory>

#include "base/result.h"
#include "sim/line_source.h"
#include "sim/trace_assembler.h"

namespace nmc::sim {

// Not thread-safe.
class TraceJson {
 public:
  TraceJson();
  ~TraceJson();
  // `line` is followed by LineSource::kPadding bytes that can be read.
  Result<void> add_line(std::string_view line, const LineSource& source, TraceAssembler& assembler);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nmc::sim
