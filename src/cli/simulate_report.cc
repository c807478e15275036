#include "cli/simulate_report.h"

#include <fmt/core.h>

#include <cmath>

#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr const char* kNotAvailable = "not_available";

double rate(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double goodput(const sim::TimedResult& timed) {
  return timed.makespan_s > 0 ? static_cast<double>(timed.requests_in_slo) / timed.makespan_s : 0;
}

// By the cache. What prefill hands over to decode moves whatever the cache does.
std::uint64_t bytes_moved(const sim::TimedResult& timed) {
  return timed.network_read_bytes + timed.disk_read_bytes + timed.disk_written_bytes;
}

double rounded(double value, double digits_after) { return std::round(value * digits_after) / digits_after; }

Json capacity_json(std::uint64_t blocks) { return blocks == sim::kUnbounded ? Json("inf") : Json(blocks); }

// What is counted, so that others can count the same.
Json definition() {
  return {{"hit", "blocks of a prompt that are cached when it is looked up, from the first up to the first that isn't"},
          {"any_hit", "blocks of a prompt that are cached when it is looked up, wherever they stand"},
          {"blocks", "all blocks of all prompts, a partial last one counted like any other, a repeated one each time"},
          {"hit_tokens", "min(hits x block_tokens, input_tokens) of each request, summed"},
          {"hit_tokens_capped", "min(hits x block_tokens, input_tokens - 1) of each request, summed"},
          {"block_hit_rate", "hit_blocks / blocks"},
          {"token_hit_rate", "hit_tokens / input_tokens"},
          {"bytes_moved",
           "KV of hits on its way to prefill, and what was read from and written to disk; not what prefill hands over"},
          {"goodput_per_s", "requests whose first token came within slo_ttft_ms, over makespan_s"}};
}

Json formula(const sim::PrefillCost& cost) {
  return {{"fixed_s", cost.fixed_s}, {"token_s", cost.token_s}, {"token_squared_s", cost.token_squared_s}};
}

Json instant_assumptions(const Simulation& simulation, const sim::Trace& trace) {
  return {
      {"time", "none: requests one at a time in their order, and what one leaves the next finds"},
      {"use",
       "after its lookup each block of a request is touched or taken in, first to last; one goes whenever there are "
       "more than the capacity"},
      {"block_tokens", trace.block_tokens()},
      {"kv_bytes_per_token", simulation.options.cost.bytes_per_token},
      {"prefill_cost", formula(simulation.options.cost.prefill)}};
}

Json timed_assumptions(const Simulation& simulation, const sim::Trace& trace) {
  const sim::TimedOptions& options = simulation.options;
  Json json = {
      {"time", "simulated; nothing was measured here"},
      {"stages",
       "lookup; read from disk what is only there; fetch over the network; prefill, whose end is the first token; "
       "hand over what was computed; decode. A stage begins when the one before it has ended"},
      {"fill",
       "a block can be hit when its prefill is done; then each block of the prompt is touched or taken in, first "
       "to last; what memory evicts goes to disk, evicted least recently used"},
      {"sharing",
       "network and disk serve one transfer at a time at full bandwidth; no batching in prefill; decode takes "
       "the same time a token in each slot"},
      {"block_tokens", trace.block_tokens()},
      {"kv_bytes_per_token", options.cost.bytes_per_token},
      {"prefill_cost", formula(options.cost.prefill)},
      {"prefill_workers", options.prefill_workers},
      {"decode_token_s", options.decode_token_s},
      {"decode_slots", options.decode_slots},
      {"fixed_lookup_cost_s", options.lookup_s},
      {"network_bytes_per_s", options.network_bytes_per_s},
      {"disk_bytes_per_s", options.disk_bytes_per_s},
      {"disk_capacity_blocks", capacity_json(options.disk_blocks)},
      {"queue_policy", simulation.queue_policy},
      {"prefetch_deadline_s", options.prefetch_deadline_s ? Json(*options.prefetch_deadline_s) : Json("none")},
      {"time_scale", options.time_scale},
      {"slo_ttft_ms", options.slo_ttft_s * 1000},
      {"calibrated_from", Json::array()}};
  for (const std::string& name : simulation.calibrated_from) json["calibrated_from"].push_back(name);
  return json;
}

void add_percentiles(Json& json, const std::string& name, const sim::Percentiles& found) {
  // To the nanosecond, which is what the simulation counts.
  json[name + "_p50"] = rounded(found.p50, 1e6);
  json[name + "_p95"] = rounded(found.p95, 1e6);
  json[name + "_p99"] = rounded(found.p99, 1e6);
  json[name + "_mean"] = rounded(found.mean, 1e6);
  json[name + "_max"] = rounded(found.max, 1e6);
}

void add_timed(Json& json, const sim::TimedResult& timed) {
  json["found_blocks"] = timed.found_blocks;
  json["found_disk_blocks"] = timed.found_disk_blocks;
  json["in_flight_blocks"] = timed.in_flight_blocks;
  json["fetches_cut"] = timed.fetches_cut;
  json["computed_tokens"] = timed.computed_tokens;
  json["bytes_moved"] = bytes_moved(timed);
  json["network_read_bytes"] = timed.network_read_bytes;
  json["network_written_bytes"] = timed.network_written_bytes;
  json["disk_read_bytes"] = timed.disk_read_bytes;
  json["disk_written_bytes"] = timed.disk_written_bytes;
  json["inserted_bytes"] = timed.inserted_bytes;
  json["evicted_bytes"] = timed.evicted_bytes;
  json["resident_bytes"] = timed.resident_bytes;
  json["samples"] = timed.ttft_ms.samples;
  add_percentiles(json, "ttft_ms", timed.ttft_ms);
  add_percentiles(json, "e2e_ms", timed.e2e_ms);
  json["makespan_s"] = timed.makespan_s;
  json["requests_in_slo"] = timed.requests_in_slo;
  json["goodput_per_s"] = goodput(timed);
  Json queues = {{"interval_s", timed.interval_s}};
  Json stations = Json::array();
  for (const sim::StationReport& station : timed.stations) {
    queues[station.name] = Json::array();
    for (const double length : station.waiting) queues[station.name].push_back(rounded(length, 1e4));
    const double begun = static_cast<double>(station.totals.begun);
    stations.push_back({{"name", station.name},
                        {"servers", station.servers},
                        {"arrivals", station.totals.arrivals},
                        {"departures", station.totals.departures},
                        {"withdrawn", station.totals.withdrawn},
                        {"utilization", station.utilization},
                        {"wait_ms_mean", begun > 0 ? sim::sim_seconds(station.totals.wait) * 1000 / begun : 0},
                        {"waiting_mean", station.waiting_mean},
                        {"waiting_max", station.waiting_max}});
  }
  json["queue_length"] = std::move(queues);
  json["stations"] = std::move(stations);
}

void add_untimed(Json& json, const sim::HitCounts& hits, const sim::CostModel& cost) {
  json["bytes_moved"] = static_cast<std::uint64_t>(static_cast<double>(hits.hit_tokens) * cost.bytes_per_token + 0.5);
  for (const char* name : {"ttft_ms_p50", "ttft_ms_p95", "ttft_ms_p99", "goodput_per_s", "queue_length"}) {
    json[name] = kNotAvailable;
  }
}

Json json_of(const SimulationRow& row, const Simulation& simulation) {
  const sim::HitCounts& hits = row.hits;
  Json json = {{"policy", row.policy},
               {"capacity_blocks", capacity_json(row.capacity_blocks)},
               {"requests", hits.requests},
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
               {"resident_blocks", hits.resident_blocks}};
  if (row.timed) {
    add_timed(json, *row.timed);
  } else {
    add_untimed(json, hits, simulation.options.cost);
  }
  return json;
}

Cell capacity_cell(std::uint64_t blocks) {
  Cell cell(capacity_text(blocks));
  cell.is_number = true;
  return cell;
}

Table table_of(const Simulation& simulation) {
  Table table;
  table.columns = {"policy",         "capacity_blocks", "requests",     "hit_blocks",     "blocks",
                   "block_hit_rate", "hit_tokens",      "input_tokens", "token_hit_rate", "evicted_blocks"};
  if (!simulation.instant) {
    table.columns.insert(table.columns.end(), {"ttft_ms_p50", "ttft_ms_p95", "ttft_ms_p99", "goodput_per_s", "gb_moved",
                                               "prefill_busy", "prefill_wait_ms", "network_busy"});
  }
  for (const SimulationRow& row : simulation.rows) {
    const sim::HitCounts& hits = row.hits;
    auto& cells = table.rows.emplace_back(std::vector<Cell>{
        row.policy, capacity_cell(row.capacity_blocks), Cell(hits.requests), Cell(hits.hit_blocks), Cell(hits.blocks),
        Cell(rate(hits.hit_blocks, hits.blocks), 4), Cell(hits.hit_tokens), Cell(hits.input_tokens),
        Cell(rate(hits.hit_tokens, hits.input_tokens), 4), Cell(hits.evicted_blocks)});
    if (!row.timed) continue;
    const sim::TimedResult& timed = *row.timed;
    const sim::StationReport &network = timed.stations[0], &prefill = timed.stations[1];
    const double begun = static_cast<double>(prefill.totals.begun);
    cells.insert(
        cells.end(),
        {Cell(timed.ttft_ms.p50, 0), Cell(timed.ttft_ms.p95, 0), Cell(timed.ttft_ms.p99, 0), Cell(goodput(timed), 3),
         Cell(static_cast<double>(bytes_moved(timed)) / 1e9, 1), Cell(prefill.utilization, 3),
         Cell(sim::sim_seconds(prefill.totals.wait) * 1000 / begun, 0), Cell(network.utilization, 3)});
  }
  return table;
}

std::string rules_words(const Simulation& simulation) {
  if (simulation.instant) {
    return "Rules: instant. Requests one at a time in their order; a hit is a cached block with only cached ones "
           "before "
           "it; then each\nblock is touched or taken in, first to last.";
  }
  const sim::TimedOptions& options = simulation.options;
  const sim::PrefillCost& cost = options.cost.prefill;
  std::string words = fmt::format(
      "Rules: timed. A hit is a cached block with only cached ones before it; a block is there when its prefill is "
      "done. "
      "Assumed:\nprefill {:g} + {:g} n + {:g} n^2 s on {} worker(s), {}; decode {:g} s a token in {} slots; lookup "
      "{:g} "
      "s; network {:g} and\ndisk {:g} GB/s, one transfer at a time; {:g} bytes of KV a token; goodput of first tokens "
      "within {:g} ms.",
      cost.fixed_s, cost.token_s, cost.token_squared_s, options.prefill_workers, simulation.queue_policy,
      options.decode_token_s, options.decode_slots, options.lookup_s, options.network_bytes_per_s / 1e9,
      options.disk_bytes_per_s / 1e9, options.cost.bytes_per_token, options.slo_ttft_s * 1000);
  for (const std::string& name : simulation.calibrated_from) words += "\nCalibrated from " + printable(name) + ".";
  return words;
}

}  // namespace

std::string capacity_text(std::uint64_t capacity_blocks) {
  return capacity_blocks == sim::kUnbounded ? "inf" : std::to_string(capacity_blocks);
}

std::string workload_words(const sim::Trace& trace) {
  return fmt::format("{}, {} requests with {} blocks of {} tokens, {} different", printable(trace.name()),
                     trace.requests().size(), trace.blocks_total(), trace.block_tokens(), trace.blocks_unique());
}

Report report_of(const sim::Trace& trace, const Simulation& simulation) {
  Report report;
  report.json = {
      {"schema", "nano-mooncake/simulation/v1"},
      {"provenance", lab::simulation_provenance_json({{"kind", "trace"}, {"digest", sim::digest_of(trace).hex()}})},
      {"rules", simulation.instant ? "instant" : "timed"},
      {"workload",
       {{"name", trace.name()},
        {"requests", trace.requests().size()},
        {"blocks", trace.blocks_total()},
        {"unique_blocks", trace.blocks_unique()},
        {"input_tokens", trace.input_tokens_total()},
        {"output_tokens", trace.output_tokens_total()},
        {"span_s",
         static_cast<double>(trace.requests().back().arrival_us - trace.requests().front().arrival_us) * 1e-6},
        {"options", simulation.workload_options}}},
      {"definition", definition()},
      {"assumptions",
       simulation.instant ? instant_assumptions(simulation, trace) : timed_assumptions(simulation, trace)},
      {"rows", Json::array()}};
  for (const SimulationRow& row : simulation.rows) report.json["rows"].push_back(json_of(row, simulation));
  report.table = table_of(simulation);
  report.text = fmt::format("Simulation, no measurement: {}.\n{}\n\n{}", workload_words(trace), rules_words(simulation),
                            format_table(report.table));
  return report;
}

}  // namespace nmc::cli
