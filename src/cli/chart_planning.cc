// Charts of what is computed and not measured: simulation, route-sim, capacity.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/chart_source.h"

namespace nmc::cli {
namespace {

constexpr std::size_t kQueueChartsMax = 4;

struct SimulatedRow {
  ReportNode node;
  std::size_t report;
  std::string policy, capacity;       // the latter "inf" or a number
  std::optional<double> blocks = {};  // unless "inf"
  std::size_t hue = 0;                // by policy
};

std::vector<SimulatedRow> rows_of(std::span<const NamedReport> reports) {
  std::vector<SimulatedRow> rows;
  std::vector<std::string> policies;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    for (const ReportNode& node : reports[r].root.items("rows")) {
      SimulatedRow row{
          .node = node, .report = r, .policy = node.text("policy"), .capacity = node.words("capacity_blocks")};
      if (row.capacity != "inf") row.blocks = node.number("capacity_blocks");
      row.hue = static_cast<std::size_t>(std::find(policies.begin(), policies.end(), row.policy) - policies.begin());
      if (row.hue == policies.size()) policies.push_back(row.policy);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

struct Measure {
  const char *member, *title, *unit;
  double factor = 1;
  const char* samples;
};
constexpr Measure kMeasures[] = {
    {"token_hit_rate", "Token hit rate", "%", 100, "requests"},
    {"block_hit_rate", "Block hit rate", "%", 100, "requests"},
    {"ttft_ms_p50", "Time to the first token, P50", "ms", 1, "samples"},
    {"ttft_ms_p95", "Time to the first token, P95", "ms", 1, "samples"},
    {"ttft_ms_p99", "Time to the first token, P99", "ms", 1, "samples"},
    {"goodput_per_s", "Goodput", "requests/s", 1, "samples"},
    {"bytes_moved", "Bytes moved", "GB", 1e-9, "requests"},
};

Figure figure_of(const SimulatedRow& row, const Measure& measure) {
  std::string samples = row.node.has(measure.samples) ? "n = " + row.node.words(measure.samples) : "";
  return row.node.figure(measure.member, std::move(samples), measure.factor);
}

BarChart bars_of(std::span<const NamedReport> reports, std::span<const SimulatedRow> rows, const Measure& measure) {
  BarChart chart{.title = measure.title, .unit = measure.unit};
  for (const SimulatedRow& row : rows) {
    const std::string label = fmt::format("{}, {} blocks", row.policy, row.capacity);
    chart.bars.push_back({label_in(reports, row.report, label), figure_of(row, measure), row.hue});
  }
  return chart;
}

// A line a policy, for the rows that say how many blocks.
LineChart lines_of(std::span<const NamedReport> reports, std::span<const SimulatedRow> rows, const Measure& measure) {
  LineChart chart{.title = fmt::format("{}, by capacity", measure.title),
                  .x = {.name = "capacity (blocks)", .log = true},
                  .y = {.name = fmt::format("{} ({})", measure.title, measure.unit)},
                  .series = {}};
  std::map<std::pair<std::size_t, std::string>, std::size_t> places;
  for (const SimulatedRow& row : rows) {
    const auto [place, is_new] = places.try_emplace({row.report, row.policy}, chart.series.size());
    if (is_new) {
      chart.series.push_back({.label = label_in(reports, row.report, row.policy), .hue = row.hue, .dash = row.report});
    }
    chart.series[place->second].points.push_back({*row.blocks, figure_of(row, measure)});
  }
  for (Series& series : chart.series) {
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const Series::Point& a, const Series::Point& b) { return a.x < b.x; });
  }
  return chart;
}

LineChart queues_of(std::span<const NamedReport> reports, const SimulatedRow& row) {
  const ReportNode queues = row.node.member("queue_length");
  const double interval = queues.number("interval_s");
  LineChart chart{.title = "Jobs that wait: " +
                           label_in(reports, row.report, fmt::format("{}, {} blocks", row.policy, row.capacity)),
                  .x = {.name = "time (s)"},
                  .y = {.name = "jobs waiting (mean of an interval)"},
                  .series = {}};
  for (const char* station : {"network", "prefill", "decode", "disk"}) {
    if (!queues.has(station)) continue;
    const std::size_t place = chart.series.size();
    Series& series =
        chart.series.emplace_back(Series{.label = station, .hue = place, .dash = place, .points = {}, .marked = false});
    const std::vector<double> lengths = queues.numbers(station);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const double x = (static_cast<double>(i) + 0.5) * interval;
      if (x > kChartNumberMax || x < -kChartNumberMax) {
        queues.refuse("interval_s", "seconds that add up to less");
        break;
      }
      series.points.push_back({x, {.value = lengths[i]}});
    }
  }
  return chart;
}

// Under instant rules the report says "not_available" once for all.
bool has_times(const SimulatedRow& row) {
  return row.node.has("queue_length") && row.node.words("queue_length") != "not_available";
}

Bar bar_of(std::span<const NamedReport> reports, std::size_t report, const std::string& label, Figure figure,
           std::size_t hue) {
  return {label_in(reports, report, label), std::move(figure), hue};
}

}  // namespace

std::vector<Chart> simulation_charts(std::span<const NamedReport> reports) {
  const std::vector<SimulatedRow> rows = rows_of(reports);
  std::vector<SimulatedRow> bounded, unbounded;
  std::set<double> capacities;
  for (const SimulatedRow& row : rows) {
    (row.blocks ? bounded : unbounded).push_back(row);
    if (row.blocks) capacities.insert(*row.blocks);
  }
  std::vector<Chart> charts;
  for (const Measure& measure : kMeasures) {
    if (capacities.size() < 3) {
      add_chart(charts, bars_of(reports, rows, measure));
      continue;
    }
    add_chart(charts, lines_of(reports, bounded, measure));
    BarChart rest = bars_of(reports, unbounded, measure);
    rest.title += ", unbounded";
    add_chart(charts, std::move(rest));
  }
  std::size_t queues = 0;
  for (const SimulatedRow& row : rows) {
    if (has_times(row) && queues++ < kQueueChartsMax) add_chart(charts, queues_of(reports, row));
  }
  return charts;
}

std::vector<Chart> route_charts(std::span<const NamedReport> reports) {
  BarChart moved{.title = "Conversations that moved", .unit = "%", .bars = {}},
      extra{.title = "Extra prefill by moves", .unit = "% of prefill without moves", .bars = {}},
      peak{.title = "Peak load of a node", .unit = "times the mean", .bars = {}},
      hits{.title = "Hit blocks", .unit = "%", .bars = {}},
      imbalance{.title = "Busiest node's uncached tokens", .unit = "times the mean", .bars = {}},
      moves{.title = "Requests that went elsewhere than their conversation's last", .unit = "requests", .bars = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const ReportNode& root = reports[r].root;
    if (root.has("routers")) {
      for (const ReportNode& row : root.items("routers")) {
        const std::string label = row.text("router"), samples = "n = " + row.words("requests");
        hits.bars.push_back(bar_of(reports, r, label, row.figure("hit_share", samples, 100), r));
        imbalance.bars.push_back(bar_of(reports, r, label, row.figure("imbalance", samples), r));
        moves.bars.push_back(bar_of(reports, r, label, row.figure("moves", samples), r));
      }
      continue;
    }
    for (const ReportNode& row : root.items("conversations")) {
      const std::string label = "seed " + row.text("seed");
      const std::string turns = fmt::format("n = {} turns", row.words("turns"));
      moved.bars.push_back(
          bar_of(reports, r, label,
                 row.figure("moved_share", fmt::format("n = {} conversations", row.words("conversations")), 100), r));
      extra.bars.push_back(bar_of(reports, r, label, row.figure("extra_prefill_share", turns, 100), r));
      peak.bars.push_back(bar_of(reports, r, label, row.figure("peak_load_by_mean", turns), r));
    }
  }
  std::vector<Chart> charts;
  for (BarChart* chart : {&moved, &extra, &peak, &hits, &imbalance, &moves}) add_chart(charts, std::move(*chart));
  return charts;
}

std::vector<Chart> capacity_charts(std::span<const NamedReport> reports) {
  struct Size {
    const char *member, *title, *unit;
  };
  constexpr Size kSizes[] = {
      {"kib_per_token", "KV of a token", "KiB"},
      {"gib_per_request", "KV of a request, allocated pages", "GiB"},
      {"effective_gib_per_request", "KV of a request, tokens that are used", "GiB"},
      {"mib_per_request_per_rank", "KV of a request on a rank", "MiB"},
      {"gib_per_batch", "KV of the batch", "GiB"},
      {"mib_per_chunk", "KV of a chunk", "MiB"},
      {"network_lower_bound_ms", "Moving a request's KV takes at least", "ms"},
      {"metadata_gib_per_request", "Metadata of the quantisation of a request, on top", "GiB"},
  };
  std::vector<Chart> charts;
  for (const Size& size : kSizes) {
    BarChart chart{.title = size.title, .unit = size.unit, .bars = {}};
    for (std::size_t r = 0; r < reports.size(); ++r) {
      for (const ReportNode& row : reports[r].root.items("rows")) {
        chart.bars.push_back(bar_of(reports, r, row.text("attention"), row.figure(size.member), r));
      }
    }
    const bool is_empty = std::all_of(chart.bars.begin(), chart.bars.end(),
                                      [](const Bar& bar) { return bar.figure.value && *bar.figure.value == 0; });
    if (!is_empty) add_chart(charts, std::move(chart));  // no metadata but with a 1-byte cache
  }
  return charts;
}

}  // namespace nmc::cli
