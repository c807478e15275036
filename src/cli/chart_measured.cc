// Charts of measurements of our own process: bench-engine, store-bench, demo, likelihood.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/chart_source.h"
#include "cli/setting.h"

namespace nmc::cli {
namespace {

// Medians with least and most, by `x`; members that a series shares stand in its label.
LineChart throughput(std::span<const NamedReport> reports, const char* list, const char* title, const char* x,
                     const char* x_name, const char* other, const std::string& rate) {
  LineChart chart{
      .title = title, .x = {.name = x_name}, .y = {.name = "tokens/s (median, least to most)"}, .series = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    std::map<double, Series> by_other;
    const std::string repeats = "n = " + reports[r].root.words("repeats");
    for (const ReportNode& row : reports[r].root.items(list)) {
      Figure figure{.value = row.number(rate),
                    .low = row.number(rate + "_min"),
                    .high = row.number(rate + "_max"),
                    .detail = fmt::format("{}; {} of memory's limit, {} of matmul's", repeats,
                                          row.words("memory_fraction"), row.words("matmul_fraction"))};
      Series& series = by_other[row.number(other)];
      series.points.push_back({row.number(x), std::move(figure)});
    }
    for (auto& [value, series] : by_other) {
      series.label = label_in(reports, r, fmt::format("{} {}", other, chart_number(value)));
      series.hue = chart.series.size();
      series.dash = r;
      std::stable_sort(series.points.begin(), series.points.end(),
                       [](const Series::Point& a, const Series::Point& b) { return a.x < b.x; });
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

// ---- store-bench ----

struct StoreRow {
  ReportNode node;
  std::size_t report = 0;
  std::string op, carrier;
  double bytes = 0, threads = 0;
};

// memcpy and the raw socket are drawn beside the carrier whose limit they are.
std::string carrier_of(const std::string& carrier) { return carrier == "memory" ? "shm" : carrier; }

class StoreRows {
 public:
  explicit StoreRows(std::span<const NamedReport> reports) : reports_(reports) {
    for (std::size_t r = 0; r < reports.size(); ++r) {
      for (const ReportNode& node : reports[r].root.items("rows")) {
        StoreRow row{.node = node,
                     .report = r,
                     .op = node.text("op"),
                     .carrier = carrier_of(node.text("carrier")),
                     .bytes = node.number("bytes"),
                     .threads = node.number("threads")};
        if (std::find(ops_.begin(), ops_.end(), row.op) == ops_.end()) ops_.push_back(row.op);
        groups_.insert({row.carrier, row.threads});
        rows_.push_back(std::move(row));
      }
    }
  }

  const std::set<std::pair<std::string, double>>& groups() const { return groups_; }

  // By size, a series an operation.
  LineChart by_size(const std::string& carrier, double threads, const char* member, const char* title,
                    const char* unit) const {
    LineChart chart{.title = fmt::format("{} by size: {}, {} thread{}", title, carrier, chart_number(threads),
                                         threads == 1 ? "" : "s"),
                    .x = {.name = "size of an object", .log = true, .bytes = true},
                    .y = {.name = fmt::format("{} ({})", title, unit)},
                    .series = {}};
    Places places;
    for (const StoreRow& row : rows_) {
      if (row.carrier != carrier || row.threads != threads) continue;
      // What carries no payload has no bandwidth; it isn't one of 0.
      if (std::string_view(member) == "payload_gb_s" && row.node.number("logical_bytes") == 0) continue;
      std::string detail = fmt::format("n = {}, {}", row.node.words("samples"), row.node.words("regime"));
      series_of(chart, places, row, row.op).points.push_back({row.bytes, row.node.figure(member, std::move(detail))});
    }
    finish(chart);
    return chart;
  }

  // By threads: what a call took and how long it waited, apart.
  LineChart by_threads(const std::string& carrier, double bytes) const {
    LineChart chart{.title = fmt::format("P99 of calls that come at random, by threads: {}, {}", carrier,
                                         bytes >= 0 && bytes < 1e18 ? format_bytes(static_cast<std::uint64_t>(bytes))
                                                                    : chart_number(bytes)),
                    .x = {.name = "threads"},
                    .y = {.name = "time (us)"},
                    .series = {}};
    Places places;
    for (const StoreRow& row : rows_) {
      const bool shown = row.op == "put" || row.op == "get_into";
      if (!shown || row.carrier != carrier || row.bytes != bytes) continue;
      const std::string samples = "n = " + row.node.words("samples");
      for (const char* part : {"service", "wait"}) {
        Series& series = series_of(chart, places, row, fmt::format("{}, {}", row.op, part));
        series.hue = static_cast<std::size_t>(&series - chart.series.data());
        series.points.push_back({row.threads, row.node.figure(fmt::format("{}_p99_us", part), samples)});
      }
    }
    finish(chart);
    return chart;
  }

  // Of the carrier's put and get_into; without value where there is only one.
  std::optional<double> largest(const std::string& carrier) const {
    std::optional<double> most;
    for (const StoreRow& row : rows_) {
      if (row.carrier == carrier && row.op == "get_into") most = std::max(most.value_or(0), row.bytes);
    }
    return most;
  }

 private:
  using Places = std::map<std::pair<std::size_t, std::string>, std::size_t>;

  Series& series_of(LineChart& chart, Places& places, const StoreRow& row, const std::string& label) const {
    const auto [place, is_new] = places.try_emplace({row.report, label}, chart.series.size());
    if (is_new) {
      const auto hue = static_cast<std::size_t>(std::find(ops_.begin(), ops_.end(), row.op) - ops_.begin());
      chart.series.push_back(
          {.label = label_in(reports_, row.report, label), .hue = hue, .dash = hue / kHues + row.report, .points = {}});
    }
    return chart.series[place->second];
  }

  static void finish(LineChart& chart) {
    for (Series& series : chart.series) {
      std::stable_sort(series.points.begin(), series.points.end(),
                       [](const Series::Point& a, const Series::Point& b) { return a.x < b.x; });
    }
    chart.y.log = spans_decades(chart);
  }

  std::span<const NamedReport> reports_;
  std::vector<StoreRow> rows_;
  std::vector<std::string> ops_;
  std::set<std::pair<std::string, double>> groups_;
};

}  // namespace

std::vector<Chart> bench_engine_charts(std::span<const NamedReport> reports) {
  std::vector<Chart> charts;
  add_chart(charts, throughput(reports, "decode", "Decode throughput", "batch", "sequences that decode together",
                               "context_tokens", "decode_tokens_per_s"));
  add_chart(charts, throughput(reports, "prefill", "Prefill throughput", "prompt_tokens", "prompt (tokens)", "batch",
                               "prefill_tokens_per_s"));
  BarChart ttft{.title = "Time to the first token (median, least to most)", .unit = "ms", .bars = {}},
      limits{.title = "Part of the machine's limits that is reached", .unit = "%", .bars = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const std::string repeats = "n = " + reports[r].root.words("repeats");
    for (const ReportNode& row : reports[r].root.items("ttft")) {
      ttft.bars.push_back({label_in(reports, r,
                                    fmt::format("{}, {} of {} tokens computed", row.text("case"),
                                                row.words("computed_tokens"), row.words("prompt_tokens"))),
                           {.value = row.number("ttft_ms"),
                            .low = row.number("ttft_ms_min"),
                            .high = row.number("ttft_ms_max"),
                            .detail = repeats},
                           r});
    }
    for (const auto& [list, tokens] : {std::pair("decode", "context_tokens"), {"prefill", "prompt_tokens"}}) {
      for (const ReportNode& row : reports[r].root.items(list)) {
        const std::string what = fmt::format("{}, batch {}, {} tokens", list, row.words("batch"), row.words(tokens));
        limits.bars.push_back(
            {label_in(reports, r, what + ": memory"), row.figure("memory_fraction", repeats, 100), 2 * r});
        limits.bars.push_back(
            {label_in(reports, r, what + ": matmul"), row.figure("matmul_fraction", repeats, 100), 2 * r + 1});
      }
    }
  }
  add_chart(charts, std::move(ttft));
  add_chart(charts, std::move(limits));
  return charts;
}

std::vector<Chart> store_bench_charts(std::span<const NamedReport> reports) {
  const StoreRows rows(reports);
  std::vector<Chart> charts;
  for (const auto& [carrier, threads] : rows.groups()) {
    add_chart(charts, rows.by_size(carrier, threads, "payload_gb_s", "Payload", "GB/s"));
    add_chart(charts, rows.by_size(carrier, threads, "p50_us", "P50", "us"));
    add_chart(charts, rows.by_size(carrier, threads, "p99_us", "P99", "us"));
  }
  std::set<std::string> carriers;
  for (const auto& [carrier, threads] : rows.groups()) carriers.insert(carrier);
  for (const std::string& carrier : carriers) {
    if (const auto largest = rows.largest(carrier)) add_chart(charts, rows.by_threads(carrier, *largest));
  }
  return charts;
}

std::vector<Chart> demo_charts(std::span<const NamedReport> reports) {
  BarChart times{.title = "Time", .unit = "ms", .bars = {}},
      tokens{.title = "Tokens of the prompt", .unit = "tokens", .bars = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    std::size_t number = 0;
    for (const ReportNode& run : reports[r].root.items("runs")) {
      const std::string name = fmt::format("run {}, from {}", ++number, run.text("cache_source"));
      times.bars.push_back({label_in(reports, r, name + ": to the first token"), run.figure("ttft_ms", "n = 1"), 0});
      times.bars.push_back({label_in(reports, r, name + ": all"), run.figure("total_ms", "n = 1"), 1});
      tokens.bars.push_back({label_in(reports, r, name + ": computed"), run.figure("computed_tokens"), 2});
      tokens.bars.push_back({label_in(reports, r, name + ": saved"), run.figure("saved_tokens"), 3});
    }
  }
  std::vector<Chart> charts;
  add_chart(charts, std::move(times));
  add_chart(charts, std::move(tokens));
  return charts;
}

std::vector<Chart> likelihood_charts(std::span<const NamedReport> reports) {
  BarChart perplexity{.title = "Perplexity", .unit = "", .bars = {}},
      change{.title = "Largest change of a token's log-likelihood against the first run", .unit = "", .bars = {}};
  LineChart tokens{.title = "Log-likelihood of each token, first run",
                   .x = {.name = "token"},
                   .y = {.name = "natural logarithm"},
                   .series = {}};
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const ReportNode& root = reports[r].root;
    std::size_t number = 0;
    const std::string samples = fmt::format("n = {} tokens", root.words("tokens"));
    for (const ReportNode& run : root.items("runs")) {
      const std::string name =
          label_in(reports, r, fmt::format("run {}, {} tokens saved", ++number, run.words("saved_tokens")));
      perplexity.bars.push_back({name, run.figure("perplexity", samples), r});
      change.bars.push_back({name, run.figure("largest_change", samples), r});
    }
    Series series{.label = label_in(reports, r, "first run"), .hue = r, .dash = r, .points = {}};
    double place = root.number("given_tokens");
    for (const double logprob : root.numbers("logprobs")) series.points.push_back({place++, {.value = logprob}});
    series.marked = series.points.size() <= 200;
    tokens.series.push_back(std::move(series));
  }
  std::vector<Chart> charts;
  add_chart(charts, std::move(perplexity));
  add_chart(charts, std::move(change));
  add_chart(charts, std::move(tokens));
  return charts;
}

}  // namespace nmc::cli
