#include "lab/slo_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace nmc::lab {
namespace {

constexpr double kReaderBusyMax = 0.9;
constexpr std::size_t kReasonsMax = 10;

double seconds_of(Nanos span) { return to_ms(span) / 1e3; }

void count_outcome(RunSummary& summary, const LoadRecord& record, const SloLimits& limits) {
  switch (record.outcome) {
    case LoadOutcome::kOk:
      ++summary.ok;
      summary.good += limits.is_met_by(record);
      break;
    case LoadOutcome::kError: ++summary.errors; break;
    case LoadOutcome::kRejected: ++summary.rejected; break;
    case LoadOutcome::kTimeout: ++summary.timeouts; break;
    case LoadOutcome::kUnfinished: ++summary.unfinished; break;
  }
}

// p99 of how late requests were sent, whatever their number: here a few are enough to judge by.
std::optional<double> p99_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[(values.size() * 990 + 999) / 1000 - 1];
}

void judge(RunSummary& summary, const SummaryOptions& options) {
  if (summary.lateness_p99_ms && *summary.lateness_p99_ms > options.max_lateness_ms) {
    summary.invalid.push_back(fmt::format(
        "requests were sent late: {:.2f} ms at p99, {:g} ms are allowed; {} of them found no open connection",
        *summary.lateness_p99_ms, options.max_lateness_ms, summary.without_connection));
  }
  if (summary.reader_busy > kReaderBusyMax) {
    summary.invalid.push_back(fmt::format("answers may have been read late: their thread was busy {:.0f} % of the time",
                                          summary.reader_busy * 100));
  }
  if (summary.failed_here > 0) {
    summary.invalid.push_back(
        fmt::format("{} requests failed here for want of descriptors or memory", summary.failed_here));
  }
  if (summary.requests == 0) summary.invalid.emplace_back("no request was due in the measured time");
}

}  // namespace

bool SloLimits::is_met_by(const LoadRecord& record) const {
  const bool has_tokens = !record.token_times.empty();
  if (ttft_ms && (!has_tokens || record.ttft_ms() > *ttft_ms)) return false;
  if (itl_ms && (!has_tokens || record.itl_mean_ms() > *itl_ms)) return false;
  return !e2e_ms || record.e2e_ms() <= *e2e_ms;
}

RunSummary summarize(const LoopRun& run, const SummaryOptions& options) {
  RunSummary summary{
      .reader_busy = run.reader_busy, .realtime_sender = run.realtime_sender, .interrupted = run.interrupted};
  summary.counted_by_server = summary.counts_cached = true;
  std::vector<double> ttft, itl, e2e, lateness;
  std::map<std::string, std::size_t> reasons;
  std::size_t sent = 0, chunks = 0;
  Nanos last = options.warmup + options.duration;
  for (const LoadRecord& record : run.records) {
    if (record.sent) lateness.push_back(to_ms(record.lateness()));
    summary.without_connection += record.no_connection;
    summary.failed_here += record.failed_here;
    if (record.planned < options.warmup) continue;
    ++summary.requests;
    sent += record.sent.has_value();
    count_outcome(summary, record, options.limits);
    if (!record.reason.empty()) ++reasons[record.reason];
    last = std::max(last, record.ended);
    if (record.outcome != LoadOutcome::kOk) continue;
    e2e.push_back(record.e2e_ms());
    if (!record.token_times.empty()) ttft.push_back(record.ttft_ms());
    for (std::size_t i = 1; i < record.token_times.size(); ++i)
      itl.push_back(to_ms(record.token_times[i] - record.token_times[i - 1]));
    chunks += record.token_times.size();
    summary.input_tokens += record.usage.prompt_tokens.value_or(0);
    summary.output_tokens += record.usage.output_tokens.value_or(0);
    summary.cached_tokens += record.usage.cached_tokens.value_or(0);
    summary.counted_by_server &= record.usage.prompt_tokens && record.usage.output_tokens;
    summary.counts_cached &= record.usage.cached_tokens.has_value();
  }
  const double measured = seconds_of(options.duration), until_last = seconds_of(last - options.warmup);
  const auto rate = [](std::size_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  summary.offered_per_s = rate(summary.requests, measured);
  summary.sent_per_s = rate(sent, measured);
  summary.goodput_per_s = rate(summary.good, measured);
  summary.ok_per_s = rate(summary.ok, until_last);
  summary.input_tokens_per_s = rate(summary.input_tokens, until_last);
  summary.output_tokens_per_s = rate(summary.output_tokens, until_last);
  if (summary.requests > 0)
    summary.good_part = static_cast<double>(summary.good) / static_cast<double>(summary.requests);
  if (summary.ok > 0) summary.chunks = static_cast<double>(chunks) / static_cast<double>(summary.ok);
  summary.ttft_ms = evidence::percentiles_of(std::move(ttft));
  summary.itl_ms = evidence::percentiles_of(std::move(itl));
  summary.e2e_ms = evidence::percentiles_of(std::move(e2e));
  summary.lateness_p99_ms = p99_of(lateness);
  summary.lateness_ms = evidence::percentiles_of(std::move(lateness));
  summary.reasons.assign(reasons.begin(), reasons.end());
  std::stable_sort(summary.reasons.begin(), summary.reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (summary.reasons.size() > kReasonsMax) summary.reasons.resize(kReasonsMax);
  judge(summary, options);
  return summary;
}

}  // namespace nmc::lab
