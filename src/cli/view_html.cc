#include "cli/view_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/chart_source.h"

namespace nmc::cli {
namespace {

Figure figure_of(const Json& row, const std::string& name, std::string detail = "") {
  const Json& value = row.at(name);
  Figure figure{.value = {}, .missing = "", .detail = std::move(detail)};
  if (value.is_number())
    figure.value = value.get<double>();
  else
    figure.missing = "not_available";
  return figure;
}

std::string text(const Json& row, const char* name) { return row.at(name).get<std::string>(); }

// "high-reuse pd-global shm 1p1d cold"
std::string label_of(const Json& row, std::initializer_list<const char*> parts) {
  std::string label;
  for (const char* part : parts) {
    if (const std::string word = text(row, part); word != "none") label += (label.empty() ? "" : " ") + word;
  }
  return label;
}

std::size_t hue_of(const std::string& mode) { return mode == "monolithic" ? 0 : mode == "pd-split" ? 1 : 2; }

BarChart metric_chart(const evidence::View& view, const std::string& metric, std::string title) {
  BarChart chart{.title = std::move(title), .unit = "ms", .bars = {}, .log = true};
  for (const Json& row : view.rows) {
    chart.bars.push_back({label_of(row, {"workload", "mode", "transfer", "ratio", "lifecycle"}),
                          figure_of(row, metric, fmt::format("{} requests", row.at("requests").get<std::uint64_t>())),
                          hue_of(text(row, "mode"))});
  }
  return chart;
}

// Each case's change from run to run, as a line.
LineChart trend_chart(const evidence::View& view) {
  LineChart chart{.title = "Median time to the whole answer, run by run",
                  .x = {.name = "run"},
                  .y = {.name = "e2e (ms)", .log = true},
                  .series = {}};
  std::map<std::string, std::size_t> runs;
  for (std::size_t i = 0; i < view.runs.size(); ++i) runs[view.runs[i]] = i + 1;
  std::map<std::string, std::size_t> series;
  for (const Json& row : view.rows) {
    const std::string label = label_of(row, {"workload", "mode", "transfer", "ratio", "lifecycle"});
    const auto [found, is_new] = series.try_emplace(label, chart.series.size());
    if (is_new) chart.series.push_back({.label = label, .hue = found->second, .dash = found->second / kHues});
    chart.series[found->second].points.push_back(
        {static_cast<double>(runs.at(text(row, "run_id"))), figure_of(row, "e2e_ms_p50", text(row, "commit"))});
  }
  return chart;
}

BarChart effect_chart(const evidence::View& view, std::string title, std::initializer_list<const char*> label) {
  static const std::map<std::string, std::size_t> verdict_hues = {
      {"win", 2}, {"loss", 1}, {"neutral", 0}, {"insufficient_evidence", 3}};
  BarChart chart{.title = std::move(title), .unit = "x", .bars = {}, .log = true};
  for (const Json& row : view.rows) {
    const std::string verdict = text(row, "verdict");
    Figure figure =
        figure_of(row, "effect", fmt::format("{} pairs, {} starts", row.at("pairs").dump(), row.at("starts").dump()));
    if (row.at("low").is_number()) figure.low = row.at("low").get<double>();
    if (row.at("high").is_number()) figure.high = row.at("high").get<double>();
    const std::string told = verdict == "insufficient_evidence" ? "insufficient" : verdict;
    chart.bars.push_back({label_of(row, label) + ": " + told, std::move(figure), verdict_hues.at(verdict)});
  }
  return chart;
}

BarChart fault_chart(const evidence::View& view) {
  BarChart chart{.title = "Cases with a fault by verdict", .unit = "cases", .bars = {}};
  std::map<std::string, std::map<std::string, double>> counts;
  for (const Json& row : view.rows) ++counts[text(row, "fault")][text(row, "verdict")];
  for (const auto& [fault, by_verdict] : counts) {
    for (const auto& [verdict, count] : by_verdict)
      chart.bars.push_back({fault + ": " + verdict,
                            {.value = count},
                            verdict == "pass"   ? 2u
                            : verdict == "fail" ? 1u
                                                : 3u});
  }
  return chart;
}

std::vector<Chart> charts_of(const evidence::View& view) {
  std::vector<Chart> charts;
  if (view.name == "compare") {
    add_chart(charts, metric_chart(view, "ttft_ms_p50", "Median time to the first token"));
    add_chart(charts, metric_chart(view, "e2e_ms_p50", "Median time to the whole answer"));
  } else if (view.name == "pressure") {
    add_chart(charts, metric_chart(view, "queue_ms_p95", "Time in the queue, 95th percentile"));
    add_chart(charts, metric_chart(view, "e2e_ms_p95", "Time to the whole answer, 95th percentile"));
  } else if (view.name == "trend") {
    add_chart(charts, trend_chart(view));
  } else if (view.name == "frontier") {
    add_chart(charts,
              effect_chart(view, "Time of split workers with the global cache, as a multiple of one worker's without",
                           {"workload", "transfer", "ratio", "lifecycle", "fault"}));
  } else if (view.name == "decision") {
    add_chart(charts, effect_chart(view, "Time of the treatment, as a multiple of the control's",
                                   {"question", "workload", "transfer", "ratio", "lifecycle"}));
  } else {
    add_chart(charts, fault_chart(view));
  }
  return charts;
}

}  // namespace

std::string view_html(const evidence::View& view, const evidence::Cohort& cohort, const std::string& table) {
  const evidence::Provenance& origin = cohort.runs.back()->provenance;
  ChartSection section{
      .title = "Runs that may be compared", .facts = view.caveats, .origin = {}, .charts = charts_of(view)};
  for (const evidence::View::Apart& apart : view.apart)
    section.facts.push_back(fmt::format("apart: {}: {}", apart.what, apart.why));
  section.origin = {fmt::format("{} runs, {}", view.runs.size(), origin.evidence_tier),
                    fmt::format("{} {} {}, {} CPUs of {}, model {}", origin.build.version, origin.build.commit,
                                origin.build.build_type, origin.machine.cpus, origin.machine.cpu, origin.model.name)};
  section.text = table;
  return charts_html("nano-mooncake results: " + view.name, std::span(&section, 1));
}

}  // namespace nmc::cli
