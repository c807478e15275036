// What a simulation says, for programs, people and spreadsheets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "sim/instant.h"
#include "sim/trace.h"

namespace nmc::cli {

struct SimulationRow {
  std::string policy;
  std::uint64_t capacity_blocks = 0;
  sim::HitCounts hits;
};

struct Simulation {
  std::string rules;
  sim::CostModel cost;
  std::vector<SimulationRow> rows;
};

// docs/formats.md, "Simulation".
Report report_of(const sim::Trace& trace, const Simulation& simulation);

// "inf" or the number.
std::string capacity_text(std::uint64_t capacity_blocks);

}  // namespace nmc::cli
