#include "cli/chart_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace nmc::cli {
namespace {

constexpr std::string_view kNotAvailable = "not_available";

const Json& nothing() {
  static const Json null;
  return null;
}

// {"not_available": why}
const Json* reason_of(const Json& json) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(kNotAvailable);
  return found != json.end() && found->is_string() ? &*found : nullptr;
}

std::string missing_words(const Json& json) {
  if (const Json* reason = reason_of(json)) {
    return fmt::format("{}: {}", kNotAvailable, reason->get_ref<const std::string&>());
  }
  return json.is_string() && json.get_ref<const std::string&>() == kNotAvailable ? std::string(kNotAvailable) : "";
}

bool is_drawable(const Json& json) { return json.is_number() && std::abs(json.get<double>()) <= kChartNumberMax; }

constexpr const char* kNumber = "a number from -1e30 to 1e30";

template <typename Of>
void cut(std::vector<Of>& all, std::size_t most, std::string& title, const char* what) {
  if (all.size() <= most) return;
  title += fmt::format(" (first {} of {} {})", most, all.size(), what);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(most), all.end());
}

}  // namespace

std::string ReportNode::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void ReportNode::refuse(std::string_view name, std::string_view expected) const {
  if (faulty()) return;
  const Json* found = json_->is_object() && json_->contains(name) ? &(*json_)[std::string(name)] : nullptr;
  *fault_ = Error{ErrorCode::kInvalidArgument, fmt::format("`{}`: expected {}, got {}", path_of(name), expected,
                                                           found ? describe_json(*found) : "nothing")};
}

bool ReportNode::has(std::string_view name) const { return !faulty() && json_->is_object() && json_->contains(name); }

bool ReportNode::is_null(std::string_view name) const { return has(name) && json_->find(name)->is_null(); }

const Json* ReportNode::find(std::string_view name) const {
  if (faulty()) return nullptr;
  const auto found = json_->is_object() ? json_->find(name) : json_->end();
  return json_->is_object() && found != json_->end() ? &*found : nullptr;
}

ReportNode ReportNode::member(std::string_view name) const {
  const Json* found = find(name);
  if (found != nullptr && found->is_object()) return {*found, path_of(name), fault_};
  refuse(name, "an object");
  return {nothing(), path_of(name), fault_};
}

std::vector<ReportNode> ReportNode::items(std::string_view name) const {
  std::vector<ReportNode> items;
  const Json* found = find(name);
  const bool fits = found != nullptr && found->is_array() &&
                    std::all_of(found->begin(), found->end(), [](const Json& item) { return item.is_object(); });
  if (!fits) {
    refuse(name, "an array of objects");
    return items;
  }
  for (std::size_t i = 0; i < found->size(); ++i)
    items.emplace_back((*found)[i], fmt::format("{}[{}]", path_of(name), i), fault_);
  return items;
}

std::vector<double> ReportNode::numbers(std::string_view name) const {
  std::vector<double> numbers;
  const Json* found = find(name);
  if (found == nullptr || !found->is_array() || !std::all_of(found->begin(), found->end(), is_drawable)) {
    refuse(name, "an array of numbers");
    return numbers;
  }
  for (const Json& item : *found) numbers.push_back(item.get<double>());
  return numbers;
}

std::vector<std::string> ReportNode::texts(std::string_view name) const {
  std::vector<std::string> texts;
  const Json* found = find(name);
  if (found == nullptr || !found->is_array() ||
      !std::all_of(found->begin(), found->end(), [](const Json& item) { return item.is_string(); })) {
    refuse(name, "an array of strings");
    return texts;
  }
  for (const Json& item : *found) texts.push_back(item.get<std::string>());
  return texts;
}

double ReportNode::number(std::string_view name) const {
  const Json* found = find(name);
  if (found != nullptr && is_drawable(*found)) return found->get<double>();
  refuse(name, kNumber);
  return 0;
}

std::string ReportNode::text(std::string_view name) const {
  const Json* found = find(name);
  if (found != nullptr && found->is_string()) return found->get<std::string>();
  refuse(name, "a string");
  return "";
}

bool ReportNode::boolean(std::string_view name) const {
  const Json* found = find(name);
  if (found != nullptr && found->is_boolean()) return found->get<bool>();
  refuse(name, "true or false");
  return false;
}

Figure ReportNode::figure(std::string_view name, std::string detail, double factor) const {
  const Json* found = find(name);
  if (found != nullptr && is_drawable(*found)) {
    return {.value = found->get<double>() * factor, .detail = std::move(detail)};
  }
  std::string missing = found == nullptr ? "" : missing_words(*found);
  if (missing.empty()) refuse(name, fmt::format("{}, or {}", kNumber, kNotAvailable));
  return {.value = std::nullopt, .missing = std::move(missing)};
}

Figure ReportNode::spread(std::string_view name) const {
  const Json* found = find(name);
  if (found != nullptr) {
    if (std::string missing = missing_words(*found); !missing.empty())
      return {.value = std::nullopt, .missing = std::move(missing)};
  }
  const ReportNode spread = member(name);
  return {.value = spread.number("median"), .low = spread.number("min"), .high = spread.number("max")};
}

std::string ReportNode::words(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) return std::string(kNotAvailable);
  if (std::string missing = missing_words(*found); !missing.empty()) return missing;
  if (found->is_string()) return found->get<std::string>();
  if (is_drawable(*found)) return chart_number(found->get<double>());
  return describe_json(*found, 60);
}

std::string label_in(std::span<const NamedReport> reports, std::size_t report, std::string_view label) {
  if (reports.size() == 1) return std::string(label);
  return label.empty() ? reports[report].name : fmt::format("{}: {}", reports[report].name, label);
}

bool spans_decades(const LineChart& chart) {
  double least = 0, most = 0;
  for (const Series& series : chart.series) {
    for (const Series::Point& point : series.points) {
      if (!point.figure.value) continue;
      const double value = *point.figure.value;
      if (value <= 0) return false;
      least = least == 0 ? value : std::min(least, value);
      most = std::max(most, value);
    }
  }
  return least > 0 && most / least >= kLogFrom;
}

void add_chart(std::vector<Chart>& charts, BarChart chart) {
  if (chart.bars.empty()) return;
  cut(chart.bars, kBarsMax, chart.title, "bars");
  charts.emplace_back(std::move(chart));
}

void add_chart(std::vector<Chart>& charts, LineChart chart) {
  std::erase_if(chart.series, [](const Series& series) { return series.points.empty(); });
  if (chart.series.empty()) return;
  cut(chart.series, kSeriesMax, chart.title, "series");
  std::string cut_title = chart.title;
  for (Series& series : chart.series) {
    std::string title = chart.title;
    cut(series.points, kPointsMax, title, "points of a series");
    if (title.size() > cut_title.size()) cut_title = std::move(title);
  }
  chart.title = std::move(cut_title);
  charts.emplace_back(std::move(chart));
}

}  // namespace nmc::cli
