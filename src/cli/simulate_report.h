// What a simulation says, for programs, people and spreadsheets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "sim/timed.h"
#include "sim/trace.h"

namespace nmc::cli {

struct SimulationRow {
  std::string policy;
  std::uint64_t capacity_blocks = 0;
  sim::HitCounts hits;
  std::optional<sim::TimedResult> timed;  // whose own hits are the same; none under instant rules
};

struct Simulation {
  bool instant = false;
  std::string queue_policy;
  Json workload_options;                     // of a generated one, else null
  std::vector<std::string> calibrated_from;  // names of the reports
  sim::TimedOptions options;                 // of instant rules, the cost only
  std::vector<SimulationRow> rows;
};

// docs/formats.md, "Simulation".
Report report_of(const sim::Trace& trace, const Simulation& simulation);

// What `nano-mooncake plot` draws of it, a page with the report's text below.
Result<std::string> simulation_chart(const Report& report, bool html);

// "inf" or the number.
std::string capacity_text(std::uint64_t capacity_blocks);
// "conversation_trace.jsonl.zst, 12031 requests with 288500 blocks of 512 tokens, 182790 different".
std::string workload_words(const sim::Trace& trace);

}  // namespace nmc::cli
