#include "sim/station.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace nmc::sim {
namespace {

using testing::ElementsAre;

// Gaps between arrivals and services, in nanoseconds.
struct Load {
  std::vector<SimNanos> gaps, services;
};
using Queue = std::function<std::vector<SimNanos>(const Load&)>;  // the wait of each

constexpr double kUtilization = 0.7;
constexpr double kMeanServiceS = 1e-3;

double exponential(Rng& rng, double mean) { return -mean * std::log1p(-rng.unit()); }

Load poisson_load(std::uint64_t seed, std::size_t jobs, bool fixed_service) {
  Rng rng(seed);
  Load load;
  for (std::size_t i = 0; i < jobs; ++i) {
    load.gaps.push_back(sim_nanos(exponential(rng, kMeanServiceS / kUtilization)));
    load.services.push_back(sim_nanos(fixed_service ? kMeanServiceS : exponential(rng, kMeanServiceS)));
  }
  return load;
}

std::vector<SimNanos> waits_of_station(const Load& load) {
  EventQueue events;
  Station station(events, 1, QueuePolicy::kFcfs);
  std::vector<SimNanos> waits(load.gaps.size());
  SimNanos arrival = 0;
  for (std::size_t i = 0; i < load.gaps.size(); ++i) {
    arrival += load.gaps[i];
    events.at(arrival, [&, i] {
      const SimNanos service = load.services[i];
      station.submit({.service = service, .done = [&waits, &events, i, came = events.now(), service] {
                        waits[i] = events.now() - service - came;
                      }});
    });
  }
  events.run();
  station.check_conserved();
  EXPECT_EQ(station.totals().departures, load.gaps.size());
  EXPECT_EQ(station.totals().wait, std::accumulate(waits.begin(), waits.end(), SimNanos{0}));
  EXPECT_EQ(station.totals().busy, std::accumulate(load.services.begin(), load.services.end(), SimNanos{0}));
  return waits;
}

// Lindley's recursion: the wait of the next is what the wait and service of this one leave beyond the gap.
std::vector<SimNanos> waits_by_recursion(const Load& load, std::size_t forgets_each = 0) {
  std::vector<SimNanos> waits(load.gaps.size());
  for (std::size_t i = 1; i < waits.size(); ++i) {
    waits[i] = std::max<SimNanos>(0, waits[i - 1] + load.services[i - 1] - load.gaps[i]);
    if (forgets_each > 0 && i % forgets_each == 0) waits[i] = 0;
  }
  return waits;
}

// Whether the mean wait over runs with fixed seeds lies within 3 standard errors of `theory_s`, and these are small.
bool mean_wait_is(double theory_s, bool fixed_service, const Queue& queue) {
  constexpr std::size_t kRuns = 30, kJobs = 40'000, kWarmUp = 2'000;
  std::vector<double> means;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const std::vector<SimNanos> waits = queue(poisson_load(seed, kJobs, fixed_service));
    means.push_back(sim_seconds(std::accumulate(waits.begin() + kWarmUp, waits.end(), SimNanos{0})) /
                    static_cast<double>(waits.size() - kWarmUp));
  }
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / kRuns;
  double squares = 0;
  for (const double one : means) squares += (one - mean) * (one - mean);
  const double error = std::sqrt(squares / (kRuns - 1) / kRuns);
  EXPECT_LT(error, 0.02 * theory_s);
  return std::abs(mean - theory_s) <= 3 * error;
}

// Pollaczek and Khinchine: rho / (1 - rho) services with exponential ones, half of that with equal ones.
constexpr double kTheoryMm1 = kUtilization / (1 - kUtilization) * kMeanServiceS;
constexpr double kTheoryMd1 = kTheoryMm1 / 2;

TEST(StationTest, MeanWaitOfMm1IsTheory) { EXPECT_TRUE(mean_wait_is(kTheoryMm1, false, waits_of_station)); }

TEST(StationTest, MeanWaitOfMd1IsTheory) { EXPECT_TRUE(mean_wait_is(kTheoryMd1, true, waits_of_station)); }

TEST(StationTest, ABrokenQueueFailsTheSameCheck) {
  const auto forgetful = [](const Load& load) { return waits_by_recursion(load, 50); };
  EXPECT_FALSE(mean_wait_is(kTheoryMm1, false, forgetful));
  EXPECT_FALSE(mean_wait_is(kTheoryMd1, true, forgetful));
  const auto lossy = [](const Load& load) {  // turns away who would wait for more than ten services
    std::vector<SimNanos> waits(load.gaps.size());
    SimNanos left = 0;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      left = std::max<SimNanos>(0, left - load.gaps[i]);
      waits[i] = left;
      if (left < sim_nanos(10 * kMeanServiceS)) left += load.services[i];
    }
    return waits;
  };
  EXPECT_FALSE(mean_wait_is(kTheoryMm1, false, lossy));
}

TEST(StationTest, WaitsAreThoseOfTheRecursionToTheNanosecond) {
  for (std::uint64_t seed = 100; seed < 110; ++seed) {
    const Load load = poisson_load(seed, 5000, false);
    EXPECT_EQ(waits_of_station(load), waits_by_recursion(load)) << "seed " << seed;
  }
}

// One server, busy for 10 ns while jobs (service, deadline) come; the order in which they end.
std::vector<int> order_of(QueuePolicy policy, const std::vector<std::pair<SimNanos, SimNanos>>& jobs) {
  EventQueue events;
  Station station(events, 1, policy);
  std::vector<int> order;
  station.submit({.service = 10, .deadline = 1000});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    station.submit({.service = jobs[i].first, .deadline = jobs[i].second, .done = [&order, i] {
                      order.push_back(static_cast<int>(i));
                    }});
  }
  events.run();
  station.check_conserved();
  return order;
}

TEST(StationTest, TheQueuePolicyPicksTheNext) {
  const std::vector<std::pair<SimNanos, SimNanos>> jobs = {{30, 100}, {5, 300}, {20, 90}, {5, 12}, {5, 200}};
  EXPECT_THAT(order_of(QueuePolicy::kFcfs, jobs), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(order_of(QueuePolicy::kSjf, jobs), ElementsAre(1, 3, 4, 2, 0));
  EXPECT_THAT(order_of(QueuePolicy::kDeadline, jobs), ElementsAre(2, 0, 4, 1, 3));  // 3 can't make it any more
}

TEST(StationTest, ServersWorkAtOnce) {
  EventQueue events;
  Station station(events, 3, QueuePolicy::kFcfs);
  for (int i = 0; i < 6; ++i) station.submit({.service = 10});
  EXPECT_EQ(station.in_service(), 3u);
  EXPECT_EQ(station.waiting(), 3u);
  events.run();
  EXPECT_EQ(events.now(), 20);
  EXPECT_EQ(station.totals().wait, 30);
}

TEST(StationTest, AWithdrawnJobMakesRoomAndIsNeverDone) {
  EventQueue events;
  Station station(events, 1, QueuePolicy::kFcfs);
  std::vector<int> done;
  const auto first = station.submit({.service = 10, .done = [&] { done.push_back(0); }});
  const auto second = station.submit({.service = 10, .done = [&] { done.push_back(1); }});
  station.submit({.service = 10, .done = [&] { done.push_back(2); }});
  events.at(4, [&] {
    EXPECT_EQ(station.withdraw(second), 0);
    EXPECT_DOUBLE_EQ(station.withdraw(first), 0.4);
    station.check_conserved();
  });
  events.run();
  EXPECT_THAT(done, ElementsAre(2));
  EXPECT_EQ(station.totals().busy, 14);
  station.check_conserved();
}

TEST(QueueSeriesTest, MeansAreOfTheTimeHoweverLong) {
  for (const double scale : {1.0, 1000.0}) {
    QueueSeries series;
    series.change(sim_nanos(1 * scale), 4);
    series.change(sim_nanos(3 * scale), 0);
    series.change(sim_nanos(8 * scale), 2);
    EXPECT_NEAR(series.mean(sim_nanos(10 * scale)), 1.2, 1e-9);
    EXPECT_EQ(series.max(), 4u);
    const std::vector<double> means = series.means(sim_nanos(10 * scale));
    EXPECT_LE(means.size(), QueueSeries::kIntervals);
    double area = 0;
    for (std::size_t i = 0; i < means.size(); ++i) {
      const double begin = static_cast<double>(i) * sim_seconds(series.interval());
      area += means[i] * (std::min(10 * scale, begin + sim_seconds(series.interval())) - begin);
    }
    EXPECT_NEAR(area, 12 * scale, 1e-6 * scale);
  }
}

}  // namespace
}  // namespace nmc::sim
