#include "cli/simulate_report.h"

#include <fmt/core.h>

#include "base/version.h"

namespace nmc::cli {
namespace {

constexpr const char* kNotAvailable = "not_available";

double rate(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// What is counted, so that others can count the same.
Json definition() {
  return {{"hit", "blocks of a prompt that are cached when it is looked up, from the first up to the first that isn't"},
          {"any_hit", "blocks of a prompt that are cached when it is looked up, wherever they stand"},
          {"blocks", "all blocks of all prompts, a partial last one counted like any other, a repeated one each time"},
          {"hit_tokens", "min(hits x block_tokens, input_tokens) of each request, summed"},
          {"hit_tokens_capped", "min(hits x block_tokens, input_tokens - 1) of each request, summed"},
          {"block_hit_rate", "hit_blocks / blocks"},
          {"token_hit_rate", "hit_tokens / input_tokens"}};
}

Json instant_assumptions(const Simulation& simulation, const sim::Trace& trace) {
  return {{"time", "none: requests one at a time in their order, and what one leaves the next finds"},
          {"use",
           "after its lookup each block of a request is touched or taken in, first to last; one goes whenever "
           "there are more than the capacity"},
          {"block_tokens", trace.block_tokens()},
          {"kv_bytes_per_token", simulation.cost.bytes_per_token}};
}

Json json_of(const SimulationRow& row, const Simulation& simulation) {
  const sim::HitCounts& hits = row.hits;
  Json json = {{"policy", row.policy}};
  if (row.capacity_blocks == sim::kUnbounded) {
    json["capacity_blocks"] = "inf";
  } else {
    json["capacity_blocks"] = row.capacity_blocks;
  }
  json.update(Json{{"requests", hits.requests},
                   {"full_hit_requests", hits.full_hit_requests},
                   {"some_hit_requests", hits.some_hit_requests},
                   {"blocks", hits.blocks},
                   {"hit_blocks", hits.hit_blocks},
                   {"any_hit_blocks", hits.any_hit_blocks},
                   {"block_hit_rate", rate(hits.hit_blocks, hits.blocks)},
                   {"input_tokens", hits.input_tokens},
                   {"hit_tokens", hits.hit_tokens},
                   {"hit_tokens_capped", hits.hit_tokens_capped},
                   {"token_hit_rate", rate(hits.hit_tokens, hits.input_tokens)},
                   {"inserted_blocks", hits.inserted_blocks},
                   {"evicted_blocks", hits.evicted_blocks},
                   {"resident_blocks", hits.resident_blocks},
                   {"bytes_moved",
                    static_cast<std::uint64_t>(static_cast<double>(hits.hit_tokens) * simulation.cost.bytes_per_token)},
                   {"ttft_ms_p50", kNotAvailable},
                   {"ttft_ms_p95", kNotAvailable},
                   {"ttft_ms_p99", kNotAvailable},
                   {"goodput_per_s", kNotAvailable},
                   {"queue_length", kNotAvailable}});
  return json;
}

Table table_of(const Simulation& simulation) {
  Table table;
  table.columns = {"policy",         "capacity_blocks", "requests",     "hit_blocks",     "blocks",
                   "block_hit_rate", "hit_tokens",      "input_tokens", "token_hit_rate", "evicted_blocks"};
  for (const SimulationRow& row : simulation.rows) {
    const sim::HitCounts& hits = row.hits;
    Cell capacity(capacity_text(row.capacity_blocks));
    capacity.is_number = true;
    table.rows.push_back({row.policy, capacity, Cell(hits.requests), Cell(hits.hit_blocks), Cell(hits.blocks),
                          Cell(rate(hits.hit_blocks, hits.blocks), 4), Cell(hits.hit_tokens), Cell(hits.input_tokens),
                          Cell(rate(hits.hit_tokens, hits.input_tokens), 4), Cell(hits.evicted_blocks)});
  }
  return table;
}

}  // namespace

std::string capacity_text(std::uint64_t capacity_blocks) {
  return capacity_blocks == sim::kUnbounded ? "inf" : std::to_string(capacity_blocks);
}

Report report_of(const sim::Trace& trace, const Simulation& simulation) {
  const BuildInfo build = build_info();
  Report report;
  report.json = {{"schema", "nano-mooncake/simulation/v1"},
                 {"build", {{"version", build.version}, {"commit", build.commit}, {"type", build.build_type}}},
                 {"evidence_tier", "simulation"},
                 {"rules", simulation.rules},
                 {"workload",
                  {{"name", trace.name()},
                   {"requests", trace.requests().size()},
                   {"blocks", trace.blocks_total()},
                   {"unique_blocks", trace.blocks_unique()},
                   {"input_tokens", trace.input_tokens_total()},
                   {"output_tokens", trace.output_tokens_total()}}},
                 {"definition", definition()},
                 {"assumptions", instant_assumptions(simulation, trace)},
                 {"rows", Json::array()}};
  for (const SimulationRow& row : simulation.rows) report.json["rows"].push_back(json_of(row, simulation));
  report.table = table_of(simulation);
  report.text = fmt::format(
      "Simulation, no measurement: {}, {} requests with {} blocks of {} tokens, {} different.\n"
      "Rules: {}. Requests one at a time in their order; a hit is a cached block with only cached ones before it; then "
      "each\nblock is touched or taken in, first to last.\n\n{}",
      printable(trace.name()), trace.requests().size(), trace.blocks_total(), trace.block_tokens(),
      trace.blocks_unique(), simulation.rules, format_table(report.table));
  return report;
}

}  // namespace nmc::cli
