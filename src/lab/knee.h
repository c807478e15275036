// The knee of a server: the highest rate at which nearly all requests are still good.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace nmc::lab {

// A rate passes when at least `part_min` of the requests offered were good.
class KneeSearch {
 public:
  explicit KneeSearch(double part_min) : part_min_(part_min) {}

  void add(double rate, double good_part) { parts_[rate] = good_part; }

  // The highest rate that passes with all lower ones that were measured; nothing: the lowest doesn't.
  std::optional<double> knee() const;
  // The next one above, which fails; nothing: all pass, so the knee may lie higher.
  std::optional<double> fails_at() const;

  // What to measure next from `first` on: twice the rate until one fails, half of it while the first fails, then
  // between the two until they are within a tenth, in `measurements_max` at most. Nothing: enough.
  std::optional<double> next(double first, std::size_t measurements_max) const;

 private:
  const double part_min_;
  std::map<double, double> parts_;
};

}  // namespace nmc::lab
