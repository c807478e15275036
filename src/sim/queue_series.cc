#include "sim/queue_series.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::sim {

void QueueSeries::add(SimNanos from, SimNanos to, std::uint64_t length) {
  while (to > interval_ * static_cast<SimNanos>(kIntervals)) {
    for (std::size_t i = 0; i < areas_.size(); ++i) {
      if (i % 2 == 0) areas_[i / 2] = areas_[i] + (i + 1 < areas_.size() ? areas_[i + 1] : 0);
    }
    areas_.resize((areas_.size() + 1) / 2);
    interval_ *= 2;
  }
  while (from < to) {
    const auto index = static_cast<std::size_t>(from / interval_);
    const SimNanos end = std::min(to, (from / interval_ + 1) * interval_);
    if (index >= areas_.size()) areas_.resize(index + 1);
    areas_[index] += static_cast<double>(length) * static_cast<double>(end - from);
    from = end;
  }
}

void QueueSeries::change(SimNanos now, std::uint64_t length) {
  NMC_REQUIRE(now >= changed_, "now={} before={}", now, changed_);
  add(changed_, now, length_);
  changed_ = now;
  length_ = length;
  max_ = std::max(max_, length);
}

std::vector<double> QueueSeries::means(SimNanos now) const {
  QueueSeries ended = *this;
  ended.change(now, length_);
  std::vector<double> means = ended.areas_;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const SimNanos begin = static_cast<SimNanos>(i) * ended.interval_;
    means[i] /= static_cast<double>(std::min(now, begin + ended.interval_) - begin);
  }
  return means;
}

double QueueSeries::mean(SimNanos now) const {
  if (now == 0) return 0;
  QueueSeries ended = *this;
  ended.change(now, length_);
  double area = 0;
  for (const double part : ended.areas_) area += part;
  return area / static_cast<double>(now);
}

}  // namespace nmc::sim
