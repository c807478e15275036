#include "lab/store_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "lab/store_bench_case.h"

namespace nmc::lab {
namespace {

constexpr std::size_t kSizeMax = std::size_t{1} << 30;
constexpr std::size_t kThreadsMax = 256;

Result<void> check(const StoreBenchOptions& options) {
  NMC_REQUIRE(
      !options.sizes.empty() && !options.threads.empty() && options.rounds > 0 && options.batch > 0 && options.load > 0,
      "sizes={} threads={} rounds={}", options.sizes.size(), options.threads.size(), options.rounds);
  for (const std::size_t bytes : options.sizes) {
    if (bytes == 0 || bytes > kSizeMax)
      return invalid_argument("a size of {} bytes: expected 1 to {}", bytes, kSizeMax);
  }
  for (const std::size_t threads : options.threads) {
    if (threads == 0 || threads > kThreadsMax)
      return invalid_argument("{} threads: expected 1 to {}", threads, kThreadsMax);
  }
  return {};
}

// All cases, in the order of the report.
std::vector<StoreBenchRow> plan(const StoreBenchOptions& options, const BenchGround& ground) {
  std::vector<StoreBenchRow> rows;
  const std::size_t smallest = *std::min_element(options.sizes.begin(), options.sizes.end());
  const auto add = [&](StoreOp op, StoreCarrier carrier) {
    const bool has_payload = op != StoreOp::kExists && op != StoreOp::kRemove;
    const bool is_batch = op == StoreOp::kBatchGetInto || op == StoreOp::kBatchPut;
    for (const std::size_t threads : options.threads) {
      for (const std::size_t bytes : options.sizes) {
        const std::size_t batch = is_batch ? ground.batch_of(bytes) : 1;
        if ((!has_payload && bytes != smallest) || (is_batch && batch == 1)) continue;
        rows.push_back({.op = op, .carrier = carrier, .bytes = bytes, .threads = threads, .batch = batch});
      }
    }
  };
  add(StoreOp::kMemcpy, StoreCarrier::kMemory);
  const auto& carriers = options.carriers;
  if (std::find(carriers.begin(), carriers.end(), StoreCarrier::kTcp) != carriers.end())
    add(StoreOp::kRawSocket, StoreCarrier::kTcp);
  for (const StoreCarrier carrier : carriers) {
    for (const StoreOp op : {StoreOp::kPut, StoreOp::kGet, StoreOp::kGetInto, StoreOp::kBatchGetInto,
                             StoreOp::kBatchPut, StoreOp::kExists, StoreOp::kRemove}) {
      add(op, carrier);
    }
  }
  return rows;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void fill(StoreBenchRow& row, const std::vector<RoundFigures>& rounds) {
  const auto over_rounds = [&](auto figure) {
    std::vector<double> values;
    for (const RoundFigures& round : rounds) values.push_back(figure(round));
    return median(std::move(values));
  };
  row.p50_us = over_rounds([](const auto& r) { return r.p50_us; });
  row.p95_us = over_rounds([](const auto& r) { return r.p95_us; });
  row.p99_us = over_rounds([](const auto& r) { return r.p99_us; });
  row.calls_per_s = over_rounds([](const auto& r) { return static_cast<double>(r.calls) / r.seconds; });
  row.payload_gb_s = over_rounds([](const auto& r) { return static_cast<double>(r.logical_bytes) / r.seconds / 1e9; });
  row.core_wait = over_rounds([](const auto& r) { return r.core_wait; });
  row.service_p50_us = over_rounds([](const auto& r) { return r.service_p50_us; });
  row.service_p99_us = over_rounds([](const auto& r) { return r.service_p99_us; });
  row.wait_p50_us = over_rounds([](const auto& r) { return r.wait_p50_us; });
  row.wait_p99_us = over_rounds([](const auto& r) { return r.wait_p99_us; });
  for (const RoundFigures& round : rounds) {
    row.samples += round.calls;
    row.logical_bytes += round.logical_bytes;
    row.physical_bytes += round.physical_bytes;
  }
}

// By the sizes of one operation, carrier and number of threads. A batch counts as its bytes.
void tell_regimes(std::vector<StoreBenchRow>& rows) {
  std::map<std::tuple<StoreOp, StoreCarrier, std::size_t>, std::vector<SizeTime>> groups;
  const auto group_of = [](const StoreBenchRow& row) { return std::tuple(row.op, row.carrier, row.threads); };
  for (const StoreBenchRow& row : rows)
    groups[group_of(row)].push_back({row.bytes * row.batch, std::max(row.p50_us, 1e-3)});
  for (StoreBenchRow& row : rows) {
    const std::vector<SizeTime>& points = groups[group_of(row)];
    const bool has_payload = row.logical_bytes > 0;
    if (!has_payload)
      row.regime = Regime::kFixedCost;
    else if (points.size() > 1)
      row.regime = regime_at(fit_cost_line(points), row.bytes * row.batch);
  }
}

}  // namespace

const char* store_op_name(StoreOp op) {
  switch (op) {
    case StoreOp::kMemcpy: return "memcpy";
    case StoreOp::kRawSocket: return "raw-socket";
    case StoreOp::kPut: return "put";
    case StoreOp::kGet: return "get";
    case StoreOp::kGetInto: return "get_into";
    case StoreOp::kBatchGetInto: return "batch_get_into";
    case StoreOp::kBatchPut: return "batch_put";
    case StoreOp::kExists: return "exists";
    case StoreOp::kRemove: return "remove";
  }
  return "";
}

const char* store_carrier_name(StoreCarrier carrier) {
  switch (carrier) {
    case StoreCarrier::kMemory: return "memory";
    case StoreCarrier::kShm: return "shm";
    case StoreCarrier::kTcp: return "tcp";
  }
  return "";
}

Result<StoreBenchResult> store_bench(const StoreBenchOptions& options) {
  NMC_RETURN_IF_ERROR(check(options));
  StoreBenchResult result;
  result.cores = std::max(1u, std::thread::hardware_concurrency());
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<BenchGround> ground, BenchGround::create(options));
  result.segment_bytes = ground->segment_bytes();
  result.rows = plan(options, *ground);
  for (const StoreBenchRow& row : result.rows) {
    if (row.op == StoreOp::kGetInto) NMC_RETURN_IF_ERROR(check_content(*ground, row));
  }
  std::vector<std::vector<RoundFigures>> figures(result.rows.size());
  const Nanos each = options.time / static_cast<std::int64_t>(result.rows.size() * options.rounds);
  for (std::size_t round = 0; round < options.rounds; ++round) {
    if (options.on_progress)
      options.on_progress(fmt::format("round {} of {}, {} cases", round + 1, options.rounds, result.rows.size()));
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      if (options.should_stop && options.should_stop()) return cancelled("stopped");
      NMC_ASSIGN_OR_RETURN(const RoundFigures measured, run_round(*ground, options, result.rows[i], each, round));
      figures[i].push_back(measured);
    }
  }
  for (std::size_t i = 0; i < result.rows.size(); ++i) fill(result.rows[i], figures[i]);
  tell_regimes(result.rows);
  return result;
}

}  // namespace nmc::lab
