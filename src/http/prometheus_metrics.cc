#include "http/prometheus_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/version.h"

namespace nmc::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Exposition {
 public:
  explicit Exposition(Labels common) : common_(std::move(common)) {}

  struct Sample {
    Labels labels;  // beside the common ones
    double value;
  };

  void counter(std::string name, std::string help, std::vector<Sample> samples) {
    std::vector<ClientMetric> metrics;
    for (Sample& sample : samples)
      metrics.emplace_back(labelled(std::move(sample.labels))).counter.value = sample.value;
    add(std::move(name), std::move(help), MetricType::Counter, std::move(metrics));
  }
  void counter(std::string name, std::string help, std::uint64_t value) {
    counter(std::move(name), std::move(help), {{{}, static_cast<double>(value)}});
  }
  void gauge(std::string name, std::string help, std::vector<Sample> samples) {
    std::vector<ClientMetric> metrics;
    for (Sample& sample : samples) metrics.emplace_back(labelled(std::move(sample.labels))).gauge.value = sample.value;
    add(std::move(name), std::move(help), MetricType::Gauge, std::move(metrics));
  }
  void gauge(std::string name, std::string help, double value) {
    gauge(std::move(name), std::move(help), {{{}, value}});
  }
  void histogram(const RequestHistograms::Named& named) {
    ClientMetric metric = labelled({});
    metric.histogram = named.metric.histogram;
    add(named.name, named.help, MetricType::Histogram, {std::move(metric)});
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric labelled(Labels labels) const {
    ClientMetric metric;
    metric.label = common_;
    metric.label.insert(metric.label.end(), labels.begin(), labels.end());
    return metric;
  }
  void add(std::string name, std::string help, MetricType type, std::vector<ClientMetric> metrics) {
    families_.push_back({.name = std::move(name), .help = std::move(help), .type = type, .metric = std::move(metrics)});
  }

  const Labels common_;
  std::vector<prometheus::MetricFamily> families_;
};

void add_requests(Exposition& out, const ServerState& state, const engine::RuntimeStatus& now,
                  std::uint64_t ended_by_stop_string) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  out.gauge("vllm:num_requests_running", "Requests that are computed.", number(now.running));
  out.gauge("vllm:num_requests_waiting", "Requests that wait.", number(now.queued));
  out.gauge("vllm:num_requests_waiting_by_reason", "The same by what they wait for: room, or something else.",
            {{{{"reason", "capacity"}}, number(now.queued)}, {{{"reason", "deferred"}}, 0}});
  out.counter("vllm:request_success_total", "Answers by how they ended.",
              {{{{"finished_reason", "stop"}}, number(state.ended_by_stop.load())},
               {{{"finished_reason", "length"}}, number(state.ended_by_length.load())},
               {{{"finished_reason", "abort"}}, number(now.counters.requests_cancelled - ended_by_stop_string)},
               {{{"finished_reason", "error"}}, number(now.counters.requests_failed)}});
  out.counter("nano_mooncake_requests_rejected_total", "Requests refused because the queue was full.",
              now.counters.requests_rejected);
  out.gauge("nano_mooncake_queue_limit", "Requests that may wait.", number(now.max_queue));
  out.gauge("nano_mooncake_running_limit", "Requests that are computed at most.", number(now.max_running));
}

void add_tokens(Exposition& out, const engine::RuntimeCounters& counters, bool reuses) {
  out.counter("vllm:prompt_tokens_total", "Tokens of prompts.", counters.prompt_tokens);
  out.counter("vllm:generation_tokens_total", "Tokens of answers.", counters.output_tokens);
  out.counter("vllm:prompt_tokens_cached_total", "Tokens of prompts that came from the cache.", counters.saved_tokens);
  out.counter("vllm:prompt_tokens_by_source_total", "Tokens of prompts by where their KV came from.",
              {{{{"source", "local_compute"}}, static_cast<double>(counters.computed_tokens)},
               {{{"source", "local_cache_hit"}}, static_cast<double>(counters.saved_tokens)}});
  out.counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache.",
              reuses ? counters.prompt_tokens : 0);
  out.counter("vllm:prefix_cache_hits_total", "Those of them that were found.", counters.saved_tokens);
  out.counter("vllm:num_preemptions_total", "Times that a request gave its memory back and went on later.",
              counters.preemptions);
  out.counter("nano_mooncake_steps_total", "Forward passes.", counters.steps);
  out.counter("nano_mooncake_snapshot_bytes_total", "KV handed over between workers.", counters.snapshot_bytes);
  out.counter("nano_mooncake_transfer_bytes_total", "What a carrier moved of it.", counters.transfer_bytes);
  out.counter("nano_mooncake_worker_failures_total", "Workers that failed.", counters.worker_failures);
}

void add_pool(Exposition& out, const ServerState& state, const store::StoreStats& stats) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  const std::uint64_t in_use = stats.blocks_reserved + stats.blocks_pinned;
  const std::uint64_t taken = std::min(stats.blocks_total, stats.blocks_reserved + stats.blocks_cached);
  out.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 1 is all; those only cached don't count.",
            stats.blocks_total == 0 ? 0 : number(in_use) / number(stats.blocks_total));
  out.gauge("vllm:cache_config_info", "The block pool, in labels.",
            {{{{"block_size", std::to_string(state.runtime.options().block_tokens)},
               {"num_gpu_blocks", std::to_string(stats.blocks_total)},
               {"enable_prefix_caching", state.runtime.options().reuse == engine::Reuse::kNone ? "False" : "True"}},
              1}});
  out.gauge("nano_mooncake_pool_blocks", "KV blocks by state; pinned ones are among the cached.",
            {{{{"state", "free"}}, number(stats.blocks_total - taken)},
             {{{"state", "reserved"}}, number(stats.blocks_reserved)},
             {{{"state", "cached"}}, number(stats.blocks_cached)},
             {{{"state", "pinned"}}, number(stats.blocks_pinned)}});
  std::vector<Exposition::Sample> hits = {{{{"tier", "dram"}}, number(stats.hits)}};
  std::vector<Exposition::Sample> errors, dropped;
  if (stats.disk) {
    hits.push_back({{{"tier", "disk"}}, number(stats.disk_hits)});
    errors.push_back({{{"tier", "disk"}}, number(stats.disk_errors)});
    dropped.push_back({{{"tier", "disk"}}, number(stats.disk_write_dropped)});
  }
  if (stats.remote) {
    hits.push_back({{{"tier", "remote"}}, number(stats.remote_hits)});
    errors.push_back({{{"tier", "remote"}}, number(stats.remote_errors)});
    dropped.push_back({{{"tier", "remote"}}, number(stats.remote_write_dropped)});
  }
  out.counter("nano_mooncake_tier_hits_total", "Objects found, by tier.", std::move(hits));
  out.counter("nano_mooncake_evicted_objects_total", "Objects evicted from memory.", stats.evicted_objects);
  if (errors.empty()) return;
  out.counter("nano_mooncake_tier_errors_total", "Reads and writes that failed, by tier.", std::move(errors));
  out.counter("nano_mooncake_tier_write_dropped_total", "Objects that came faster than the tier takes them.",
              std::move(dropped));
}

}  // namespace

std::string prometheus_text(const ServerState& state) {
  // Read before the runtime's counters: each of these cancellations is in them by then.
  const std::uint64_t ended_by_stop_string = state.ended_by_stop_string.load();
  const engine::RuntimeStatus now = state.runtime.status();
  Exposition out({{"model_name", state.options.served_model_name}, {"engine", "0"}});
  add_requests(out, state, now, ended_by_stop_string);
  add_tokens(out, now.counters, state.runtime.options().reuse != engine::Reuse::kNone);
  if (state.store != nullptr) add_pool(out, state, state.store->stats());
  for (const RequestHistograms::Named& named : state.histograms.collect()) out.histogram(named);
  out.gauge("nano_mooncake_build_info", "What this server is, in labels.", {{{{"version", build_info().version}}, 1}});
  return out.text();
}

}  // namespace nmc::http
