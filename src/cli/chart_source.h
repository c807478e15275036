// A report as the charts read it: any JSON may come, and what isn't as expected is one error that names its path. The
// first one sticks: from then on getters return empty values, so a reader checks once, at its end. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/chart.h"

namespace nmc::cli {

class ReportNode {
 public:
  // `json` and `fault` outlive this; `fault` gets the first error, without the file's name.
  ReportNode(const Json& json, std::string path, std::optional<Error>* fault)
      : json_(&json), path_(std::move(path)), fault_(fault) {}

  bool has(std::string_view name) const;  // present, be it null
  bool is_null(std::string_view name) const;
  ReportNode member(std::string_view name) const;              // an object
  std::vector<ReportNode> items(std::string_view name) const;  // an array of objects
  std::vector<double> numbers(std::string_view name) const;    // an array of numbers
  std::vector<std::string> texts(std::string_view name) const;

  double number(std::string_view name) const;  // within kChartNumberMax
  std::string text(std::string_view name) const;
  bool boolean(std::string_view name) const;
  // A number times `factor`, or "not_available", or {"not_available": why}.
  Figure figure(std::string_view name, std::string detail = "", double factor = 1) const;
  // A number, a text, or what else stands there, in words; not_available as such.
  std::string words(std::string_view name) const;
  // {"median", "min", "max"} or not available.
  Figure spread(std::string_view name) const;

  bool faulty() const { return fault_->has_value(); }
  void refuse(std::string_view name, std::string_view expected) const;

 private:
  const Json* find(std::string_view name) const;  // null if there is none, which is then an error
  std::string path_of(std::string_view name) const;

  const Json* json_;
  std::string path_;
  std::optional<Error>* fault_;
};

// A report that was read, and by which name it goes in legends.
struct NamedReport {
  std::string name;
  ReportNode root;
};

// Puts the name before a label where there are several reports.
std::string label_in(std::span<const NamedReport> reports, std::size_t report, std::string_view label);

// What each kind of report has to show, of one or several of that kind.
std::vector<Chart> simulation_charts(std::span<const NamedReport> reports);
std::vector<Chart> route_charts(std::span<const NamedReport> reports);
std::vector<Chart> capacity_charts(std::span<const NamedReport> reports);
std::vector<Chart> slo_charts(std::span<const NamedReport> reports);
std::vector<Chart> bench_engine_charts(std::span<const NamedReport> reports);
std::vector<Chart> store_bench_charts(std::span<const NamedReport> reports);
std::vector<Chart> demo_charts(std::span<const NamedReport> reports);
std::vector<Chart> likelihood_charts(std::span<const NamedReport> reports);

// Charts stay readable: of more bars or series than that the first are drawn, and the title says so.
inline constexpr std::size_t kBarsMax = 60, kSeriesMax = 24, kPointsMax = 2000;
void add_chart(std::vector<Chart>& charts, BarChart chart);
void add_chart(std::vector<Chart>& charts, LineChart chart);
// Not worth an axis of its own below: so many times the least is the largest.
inline constexpr double kLogFrom = 30;
// Whether figures span decades, so that a logarithmic axis shows more. False with any that isn't above 0.
bool spans_decades(const LineChart& chart);

}  // namespace nmc::cli
