// Charts of load on a server.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cli/chart_source.h"

namespace nmc::cli {
namespace {

constexpr const char* kTimes[][2] = {
    {"ttft_ms", "Time to the first token"}, {"itl_ms", "Gap between tokens"}, {"e2e_ms", "Whole request"}};
constexpr const char* kPercentiles[] = {"p50", "p95", "p99"};

std::string run_label(const ReportNode& run) {
  const std::string rate = run.is_null("rate_per_s") ? "" : fmt::format("{} requests/s, ", run.words("rate_per_s"));
  return fmt::format("{}run {}{}", rate, chart_number(run.number("repeat") + 1),
                     run.boolean("valid") ? "" : ", invalid");
}

// {"ms", "low_ms", "high_ms"} or not available.
Figure percentile_of(const ReportNode& times, const char* name, const std::string& detail) {
  const std::string words = times.words(name);
  if (words.starts_with("not_available")) return {.value = std::nullopt, .missing = words, .detail = detail};
  const ReportNode found = times.member(name);
  return {
      .value = found.number("ms"), .low = found.number("low_ms"), .high = found.number("high_ms"), .detail = detail};
}

// Requests of all valid runs at a rate, for n.
std::string samples_at(const ReportNode& root, double rate, const std::string& times) {
  double samples = 0;
  for (const ReportNode& run : root.items("runs")) {
    if (run.is_null("rate_per_s") || !run.boolean("valid") || run.number("rate_per_s") != rate) continue;
    samples += times.empty() ? run.number("requests") : run.member(times).number("samples");
  }
  return fmt::format("n = {} in all", chart_number(samples));
}

// A figure of `rates` at each rate: median over valid runs, least to most.
Series over_rates(std::span<const NamedReport> reports, std::size_t report, const std::string& member,
                  const std::string& label, std::size_t hue, const std::string& times) {
  Series series{.label = label_in(reports, report, label), .hue = hue, .dash = hue + 3 * report, .points = {}};
  const ReportNode& root = reports[report].root;
  for (const ReportNode& rate : root.items("rates")) {
    if (rate.is_null("rate_per_s")) continue;
    const double x = rate.number("rate_per_s");
    Figure figure = rate.spread(member);
    figure.detail = fmt::format("{} of {} runs valid, {}", rate.words("valid_runs"), rate.words("runs"),
                                samples_at(root, x, times));
    series.points.push_back({x, std::move(figure)});
  }
  std::stable_sort(series.points.begin(), series.points.end(),
                   [](const Series::Point& a, const Series::Point& b) { return a.x < b.x; });
  return series;
}

constexpr const char* kRateAxis = "rate asked for (requests/s)";

void add_rate_charts(std::vector<Chart>& charts, std::span<const NamedReport> reports) {
  LineChart kept{.title = "What was offered, answered, and answered in time (median of valid runs, least to most)",
                 .x = {.name = kRateAxis},
                 .y = {.name = "requests/s"},
                 .series = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    kept.series.push_back(over_rates(reports, r, "offered_per_s", "offered", 0, ""));
    kept.series.push_back(over_rates(reports, r, "ok_per_s", "answered", 1, ""));
    kept.series.push_back(over_rates(reports, r, "goodput_per_s", "goodput", 2, ""));
  }
  add_chart(charts, std::move(kept));
  for (const auto& [member, title] : kTimes) {
    LineChart chart{.title = fmt::format("{} by rate (median of valid runs, least to most)", title),
                    .x = {.name = kRateAxis},
                    .y = {.name = fmt::format("{} (ms)", title)},
                    .series = {}};
    for (std::size_t r = 0; r < reports.size(); ++r) {
      std::size_t hue = 0;
      for (const char* percentile : kPercentiles) {
        chart.series.push_back(
            over_rates(reports, r, fmt::format("{}_{}", member, percentile), percentile, hue++, member));
      }
    }
    chart.y.log = spans_decades(chart);
    add_chart(charts, std::move(chart));
  }
}

}  // namespace

std::vector<Chart> slo_charts(std::span<const NamedReport> reports) {
  std::vector<Chart> charts;
  std::set<double> rates;
  for (const NamedReport& report : reports) {
    for (const ReportNode& rate : report.root.items("rates")) {
      if (!rate.is_null("rate_per_s")) rates.insert(rate.number("rate_per_s"));
    }
  }
  if (rates.size() > 1) add_rate_charts(charts, reports);
  BarChart outcomes{.title = "Requests by outcome", .unit = "requests", .bars = {}},
      goodput{.title = "Goodput of each run", .unit = "requests/s", .bars = {}},
      late{.title = "How late requests were sent, P99", .unit = "ms", .bars = {}};
  std::vector<BarChart> times;
  for (const auto& [member, title] : kTimes)
    times.push_back({.title = fmt::format("{} of each run (with 95 % interval)", title), .unit = "ms", .bars = {}});
  for (std::size_t r = 0; r < reports.size(); ++r) {
    for (const ReportNode& run : reports[r].root.items("runs")) {
      const std::string name = label_in(reports, r, run_label(run)), all = "n = " + run.words("requests");
      std::size_t hue = 0;
      for (const char* outcome : {"ok", "good", "error", "rejected", "timeout", "unfinished"})
        outcomes.bars.push_back({fmt::format("{}: {}", name, outcome), run.figure(outcome, all), hue++});
      goodput.bars.push_back({name, run.figure("goodput_per_s", all), r});
      late.bars.push_back({name, run.member("generator").figure("lateness_p99_ms", all), r});
      for (std::size_t t = 0; t < times.size(); ++t) {
        const ReportNode found = run.member(kTimes[t][0]);
        hue = 0;
        for (const char* percentile : kPercentiles) {
          times[t].bars.push_back({fmt::format("{}: {}", name, percentile),
                                   percentile_of(found, percentile, "n = " + found.words("samples")), hue++});
        }
      }
    }
  }
  for (BarChart& chart : times) add_chart(charts, std::move(chart));
  add_chart(charts, std::move(goodput));
  add_chart(charts, std::move(outcomes));
  add_chart(charts, std::move(late));
  return charts;
}

}  // namespace nmc::cli
