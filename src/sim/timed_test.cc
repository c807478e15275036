#include "sim/timed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/workload.h"

namespace nmc::sim {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kBlockTokens = 100;

struct Asked {
  double at_s;
  std::uint32_t tokens, output;
  std::vector<std::uint64_t> keys;
};

Trace trace_of(const std::vector<Asked>& requests) {
  Trace trace("hand", kBlockTokens);
  for (const Asked& asked : requests) {
    TraceRequest request;
    request.arrival_us = static_cast<std::int64_t>(asked.at_s * 1e6);
    request.input_tokens = asked.tokens;
    request.output_tokens = asked.output;
    EXPECT_TRUE(trace.add(request, asked.keys));
  }
  return trace;
}

// A token is 10 bytes and takes 1 ms to compute and 1 ms over the network or 2 ms from disk; a lookup takes 0.5 s.
TimedOptions plain_options() {
  TimedOptions options;
  options.cost = {.prefill = {.fixed_s = 0, .token_s = 1e-3, .token_squared_s = 0}, .bytes_per_token = 10};
  options.lookup_s = 0.5;
  options.network_bytes_per_s = 10'000;
  options.disk_bytes_per_s = 5'000;
  options.decode_token_s = 0.1;
  return options;
}

TimedResult simulate(const Trace& trace, const TimedOptions& options, std::string_view policy = "lru") {
  Result<TimedResult> result = simulate_timed(trace, policy, options);
  EXPECT_TRUE(result);
  return std::move(*result);
}

TEST(TimedTest, OneRequestTakesTheSumOfItsStages) {
  const TimedResult result = simulate(trace_of({{0, 250, 11, {1, 2, 3}}}), plain_options());
  EXPECT_DOUBLE_EQ(result.ttft_ms.p50, 500 + 250);
  EXPECT_DOUBLE_EQ(result.e2e_ms.p50, 750 + 250 + 1000);  // the hand-over of what was computed, ten more tokens
  EXPECT_EQ(result.network_written_bytes, 2500u);
  EXPECT_EQ(result.network_read_bytes, 0u);
  EXPECT_EQ(result.hits.hit_blocks, 0u);
  EXPECT_EQ(result.makespan_s, 2);
}

TEST(TimedTest, AHitIsFetchedAndTheRestComputed) {
  const TimedResult result = simulate(trace_of({{0, 250, 1, {1, 2, 3}}, {10, 250, 1, {1, 2, 4}}}), plain_options());
  EXPECT_EQ(result.hits.hit_blocks, 2u);
  EXPECT_EQ(result.hits.hit_tokens, 200u);
  EXPECT_EQ(result.network_read_bytes, 2000u);
  EXPECT_EQ(result.computed_tokens, 300u);
  EXPECT_DOUBLE_EQ(result.ttft_ms.max, 750);
  EXPECT_DOUBLE_EQ(result.ttft_ms.p50, 750);  // 500 + 200 of the fetch + 50
}

TEST(TimedTest, AWholePromptFromTheCacheStillComputesOneToken) {
  const TimedResult result = simulate(trace_of({{0, 200, 1, {1, 2}}, {10, 200, 1, {1, 2}}}), plain_options());
  EXPECT_EQ(result.hits.full_hit_requests, 1u);
  EXPECT_EQ(result.hits.hit_tokens, 200u);
  EXPECT_EQ(result.computed_tokens, 201u);
  EXPECT_DOUBLE_EQ(result.ttft_ms.max, 701);
}

TEST(TimedTest, ABlockIsThereWhenItsPrefillIsDone) {
  // Prefill of the first ends at 1.5; the second looks at 1.4, the third at 1.6.
  const TimedResult result =
      simulate(trace_of({{0, 1000, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {0.9, 100, 1, {1}}, {1.1, 100, 1, {1}}}),
               plain_options());
  EXPECT_EQ(result.hits.hit_blocks, 1u);
  EXPECT_EQ(result.in_flight_blocks, 1u);
}

TEST(TimedTest, RequestsShareThePrefillWorker) {
  const std::vector<Asked> three = {
      {0, 1000, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {0, 100, 1, {11}}, {0, 100, 1, {12}}};
  TimedOptions options = plain_options();
  const TimedResult one = simulate(trace_of(three), options);
  EXPECT_DOUBLE_EQ(one.ttft_ms.max, 1700);
  EXPECT_EQ(one.stations[1].totals.wait, sim_nanos(1.0 + 1.1));
  options.prefill_workers = 3;
  EXPECT_DOUBLE_EQ(simulate(trace_of(three), options).ttft_ms.p50, 600);
}

TEST(TimedTest, WhatMemoryEvictsIsFoundOnDisk) {
  TimedOptions options = plain_options();
  options.memory_blocks = 2;
  options.disk_blocks = 10;
  const TimedResult result =
      simulate(trace_of({{0, 200, 1, {1, 2}}, {10, 200, 1, {3, 4}}, {20, 200, 1, {1, 2}}}), options);
  EXPECT_EQ(result.hits.hit_blocks, 2u);
  EXPECT_EQ(result.found_disk_blocks, 2u);
  EXPECT_EQ(result.disk_read_bytes, 2000u);
  EXPECT_EQ(result.disk_written_bytes, 4000u);  // 1 and 2, then 3 and 4
  EXPECT_DOUBLE_EQ(result.ttft_ms.max, 500 + 400 + 200 + 1);
}

TEST(TimedTest, APrefetchThatIsLateGoesOnWithTheBlocksThatArrivedWhole) {
  TimedOptions options = plain_options();
  options.prefetch_deadline_s = 0.25;
  const std::vector<std::uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const TimedResult result = simulate(trace_of({{0, 1000, 1, keys}, {10, 1000, 1, keys}}), options);
  EXPECT_EQ(result.fetches_cut, 1u);
  EXPECT_EQ(result.found_blocks, 10u);
  EXPECT_EQ(result.hits.hit_blocks, 2u);
  EXPECT_EQ(result.network_read_bytes, 2500u);
  EXPECT_EQ(result.computed_tokens, 1800u);
  EXPECT_DOUBLE_EQ(result.ttft_ms.max, 500 + 250 + 800);
}

TEST(TimedTest, FarApartTheHitsAreThoseOfTheInstantRules) {
  for (const char* workload : {"zipf", "multi-turn"}) {
    const auto trace = make_workload(workload, {.seed = 5, .requests = 400, .rate_per_s = 1e-4, .documents = 30});
    ASSERT_TRUE(trace);
    for (const char* policy : policy_names()) {
      for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100}, kUnbounded}) {
        TimedOptions options;
        options.memory_blocks = capacity;
        const TimedResult timed = simulate(*trace, options, policy);
        const HitCounts instant = *replay_instant(*trace, policy, capacity, options.cost);
        EXPECT_EQ(timed.hits.hit_blocks, instant.hit_blocks) << workload << " " << policy << " " << capacity;
        EXPECT_EQ(timed.hits.hit_tokens, instant.hit_tokens);
        EXPECT_EQ(timed.hits.evicted_blocks, instant.evicted_blocks);
        EXPECT_EQ(timed.in_flight_blocks, 0u);
      }
    }
  }
}

TEST(TimedTest, NothingIsLostWhateverTheLoadAndTheLimits) {
  for (const char* workload : workload_names()) {
    for (const double rate : {0.2, 5.0}) {
      const auto trace = make_workload(workload, {.seed = 9, .requests = 600, .rate_per_s = rate, .documents = 40});
      ASSERT_TRUE(trace);
      for (const QueuePolicy queue : {QueuePolicy::kFcfs, QueuePolicy::kSjf, QueuePolicy::kDeadline}) {
        TimedOptions options;
        options.memory_blocks = 200;
        options.disk_blocks = 150;
        options.network_bytes_per_s = 2e9;
        options.disk_bytes_per_s = 1e9;
        options.queue_policy = queue;
        options.prefetch_deadline_s = 0.5;
        options.slo_ttft_s = 3;
        const TimedResult result = simulate(*trace, options, "s3-fifo");  // asserts conservation as it goes
        EXPECT_EQ(result.hits.requests, 600u);
        EXPECT_EQ(result.ttft_ms.samples, 600u);
        EXPECT_EQ(result.inserted_bytes, result.evicted_bytes + result.resident_bytes);
        for (const StationReport& station : result.stations) {
          EXPECT_EQ(station.totals.arrivals, station.totals.departures + station.totals.withdrawn) << station.name;
          EXPECT_LE(station.utilization, 1) << station.name;
        }
      }
    }
  }
}

TEST(TimedTest, ShortJobsFirstServesMoreInTimeUnderOverload) {
  const auto trace = make_workload("zipf", {.seed = 2, .requests = 500, .rate_per_s = 3, .documents = 200});
  ASSERT_TRUE(trace);
  TimedOptions options;
  options.slo_ttft_s = 5;
  const TimedResult fcfs = simulate(*trace, options);
  options.queue_policy = QueuePolicy::kSjf;
  const TimedResult sjf = simulate(*trace, options);
  EXPECT_GT(fcfs.stations[1].utilization, 0.9);
  EXPECT_LT(sjf.ttft_ms.mean, fcfs.ttft_ms.mean);
  EXPECT_GT(sjf.requests_in_slo, fcfs.requests_in_slo);
}

TEST(TimedTest, PercentilesAreOfTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Percentiles found = percentiles_of(values);
  EXPECT_EQ(found.p50, 50);
  EXPECT_EQ(found.p95, 95);
  EXPECT_EQ(found.p99, 99);
  EXPECT_EQ(found.max, 100);
  EXPECT_EQ(found.samples, 100u);
  EXPECT_EQ(percentiles_of({7}).p99, 7);
}

TEST(WorkloadTest, EqualSeedsMakeEqualTracesAndOthersDoNot) {
  for (const char* name : workload_names()) {
    const auto one = make_workload(name, {.seed = 3}), same = make_workload(name, {.seed = 3});
    const auto other = make_workload(name, {.seed = 4});
    ASSERT_TRUE(one && same && other);
    ASSERT_EQ(one->requests().size(), 1000u);
    bool differs = false;
    for (std::size_t i = 0; i < 1000; ++i) {
      const TraceRequest &a = one->requests()[i], &b = same->requests()[i];
      ASSERT_EQ(a.arrival_us, b.arrival_us);
      ASSERT_EQ(a.input_tokens, b.input_tokens);
      ASSERT_TRUE(std::ranges::equal(one->blocks_of(a), same->blocks_of(b)));
      differs = differs || a.arrival_us != other->requests()[i].arrival_us;
      ASSERT_TRUE(i == 0 || one->requests()[i - 1].arrival_us <= a.arrival_us);
    }
    EXPECT_TRUE(differs) << name;
  }
}

TEST(WorkloadTest, TheRateIsThatAskedFor) {
  for (const char* name : workload_names()) {
    const auto trace = make_workload(name, {.seed = 1, .requests = 20'000, .rate_per_s = 4, .documents = 10});
    ASSERT_TRUE(trace);
    const double span_s = static_cast<double>(trace->requests().back().arrival_us) * 1e-6;
    EXPECT_NEAR(20'000 / span_s, 4, 0.2) << name;
  }
}

TEST(WorkloadTest, EachHasTheShapeItsNameSays) {
  const WorkloadOptions options{.seed = 1, .requests = 4000, .rate_per_s = 10, .documents = 50};
  const auto hit_rate = [&](std::string_view name, std::uint64_t capacity) {
    const auto trace = make_workload(name, options);
    const HitCounts hits = *replay_instant(*trace, "lru", capacity, {});
    return static_cast<double>(hits.hit_blocks) / static_cast<double>(hits.blocks);
  };
  // 50 documents of about 16 blocks: 300 blocks are too few for a scan and enough for what is popular.
  EXPECT_EQ(hit_rate("scan", 300), 0);
  EXPECT_GT(hit_rate("zipf", 300), 0.2);
  EXPECT_LT(hit_rate("model-switch", kUnbounded), hit_rate("zipf", kUnbounded));
  const auto burst = make_workload("burst", options);
  std::size_t in_bursts = 0;
  for (const TraceRequest& request : burst->requests()) in_bursts += request.arrival_us % 60'000'000 < 6'000'000;
  EXPECT_NEAR(static_cast<double>(in_bursts) / 4000, 0.5, 0.05);
  const auto talks = make_workload("multi-turn", options);
  std::size_t longer = 0;
  std::map<std::int64_t, std::uint32_t> last;
  for (const TraceRequest& request : talks->requests()) {
    if (const auto known = last.find(request.session); known != last.end()) {
      EXPECT_GT(request.input_tokens, known->second);
      ++longer;
    }
    last[request.session] = request.input_tokens;
  }
  EXPECT_NEAR(4000.0 / static_cast<double>(last.size()), 8, 1.5);
  EXPECT_GT(longer, 3000u);
}

TEST(WorkloadTest, AnUnknownOneIsRefusedWithTheNames) {
  const auto trace = make_workload("storm", {});
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, HasSubstr("scan, zipf, burst, model-switch, multi-turn"));
}

}  // namespace
}  // namespace nmc::sim
