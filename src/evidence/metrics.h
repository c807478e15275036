// What is measured of a request, by the names that docs/formats.md, "Metrics", gives.
#pragma once

#include <span>
#include <string_view>

namespace nmc::evidence {

struct Metric {
  std::string_view name;
  std::string_view unit;  // "ms", "tokens", "blocks", "bytes", "count"
  bool is_count;          // a whole number, and the same in each run of one workload
};

// In the order in which reports have them: times first.
std::span<const Metric> request_metrics();
const Metric* find_request_metric(std::string_view name);  // nullptr: there is no such metric

// Whether it is a request's time, in ms.
bool is_time(std::string_view metric);

// Six decimals, as digests see them, so that what is written is what is digested.
double rounded(double value);

}  // namespace nmc::evidence
