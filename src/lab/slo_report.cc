#include "lab/slo_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lab/bench_engine.h"
#include "lab/identity.h"
#include "lab/kernel_usage.h"

namespace nmc::lab {
namespace {

Json not_available(std::string_view why) { return {{"not_available", why}}; }
Json said_or_not(const std::string& text, std::string_view flag) {
  return text.empty() ? not_available(fmt::format("not said: {}", flag)) : Json(text);
}
double seconds_of(Nanos span) { return to_ms(span) / 1e3; }

Json limits_json(const SloLimits& limits) {
  const auto of = [](const std::optional<double>& limit) { return limit ? Json(*limit) : Json(nullptr); };
  return {{"ttft_ms", of(limits.ttft_ms)}, {"itl_ms", of(limits.itl_ms)}, {"e2e_ms", of(limits.e2e_ms)}};
}

Json load_json(const SloOptions& options) {
  const PromptOptions& prompts = options.prompts;
  Json load = {{"arrivals", arrivals_name(options.arrivals)}, {"workload", workload_name(prompts.workload)}};
  load["rates_per_s"] = options.rates;
  if (options.arrivals == Arrivals::kBursts) load["burst_size"] = options.burst_size;
  if (options.concurrency > 0) load["concurrency"] = options.concurrency;
  if (prompts.trace == nullptr) {
    load["prompt_tokens"] = prompts.prompt_tokens.to_string();
    load["output_tokens"] = prompts.output_tokens.to_string();
    load["shared_part"] = prompts.workload == Workload::kDistinct ? 0 : prompts.shared_part;
    load["groups"] = prompts.groups;
  } else {
    load["trace_requests"] = prompts.trace->requests.size();
    load["trace_block_tokens"] = prompts.trace->block_tokens;
  }
  load["prompt_form"] = options.body.chat ? "chat" : options.body.text ? "text" : "tokens";
  load["streamed"] = options.body.streamed;
  load["ignore_eos"] = options.body.ignore_eos;
  load["warmup_s"] = seconds_of(options.warmup);
  load["duration_s"] = options.duration ? Json(seconds_of(*options.duration)) : Json("the trace's");
  load["repeats"] = options.repeats;
  load["seed"] = options.seed;
  load["timeout_s"] = seconds_of(options.timeout);
  load["max_lateness_ms"] = options.max_lateness_ms;
  load["slo"] = limits_json(options.limits);
  return load;
}

Json host_json() {
  const HostFacts host = read_host();
  return {{"cpu", host.cpu.empty() ? not_available("the kernel doesn't tell") : Json(host.cpu)},
          {"cores", host.cores},
          {"memory_bytes", host.memory_bytes},
          {"kernel", host.kernel}};
}

// Build and machine are the generator's. What was measured is the server's, so it is the server who knows what kind of
// evidence its figures are.
Json origin_json(const SloOptions& options, const SloLabels& labels) {
  Json workload = {{"kind", "slo"}, {"load", load_json(options)}};
  if (const LoadTrace* const trace = options.prompts.trace.get())
    workload.update({{"trace_digest", trace->digest}, {"time_scale", trace->time_scale}});
  Json json = provenance_json({.evidence_tier = "", .workload = std::move(workload)});
  const Json& server = labels.server_provenance;
  const auto said = [&](const char* name) {
    return server.is_object() && server.contains(name) ? server[name]
                                                       : not_available("the server has no /v1/metrics that says it");
  };
  for (const char* name : {"evidence_tier", "model"}) json[name] = said(name);
  json["server_build"] = said("build");
  json["server_machine"] = said("machine");
  return json;
}

Json server_json(const SloOptions& options, const SloLabels& labels) {
  return {{"url", labels.url},
          {"version",
           labels.server_version.empty() ? not_available("the server has no /version") : Json(labels.server_version)},
          {"model", options.body.model},
          {"tensor_parallel", said_or_not(labels.tensor_parallel, "--tp")},
          {"pipeline_parallel", said_or_not(labels.pipeline_parallel, "--pp")},
          {"kv_dtype", said_or_not(labels.kv_dtype, "--kv-dtype")},
          {"kv_layout", said_or_not(labels.kv_layout, "--kv-layout")}};
}

// What nothing here reads, with why.
Json unmeasured_json() {
  return {{"master_rpc_latency_ms", not_available("a master counts its requests and doesn't time them; "
                                                  "`nano-mooncake store-bench` times them from outside")},
          {"dram_utilization", not_available("the counters of the memory controller need privileges; "
                                             "`perf stat` reads them where they exist")},
          {"pcie_utilization", not_available("no counter of it is read")},
          {"gpu_utilization", not_available("no counter of it is read; `nvidia-smi dmon` does")}};
}

Json tokens_json(const RunSummary& summary) {
  Json tokens;
  const bool counted = summary.ok > 0 && summary.counted_by_server;
  const auto or_why = [&](double value) {
    return counted ? Json(value) : not_available("not every answer had its usage");
  };
  tokens["input_tokens"] = counted ? Json(summary.input_tokens) : not_available("not every answer had its usage");
  tokens["output_tokens"] = counted ? Json(summary.output_tokens) : not_available("not every answer had its usage");
  tokens["cached_tokens"] = summary.ok > 0 && summary.counts_cached
                                ? Json(summary.cached_tokens)
                                : not_available("not every answer told its cached tokens");
  tokens["input_tokens_per_s"] = or_why(summary.input_tokens_per_s);
  tokens["output_tokens_per_s"] = or_why(summary.output_tokens_per_s);
  tokens["chunks_per_answer"] = summary.chunks;
  return tokens;
}

Json run_json(const SloRun& run) {
  const RunSummary& summary = run.summary;
  Json json = {{"rate_per_s", run.rate ? Json(*run.rate) : Json(nullptr)},
               {"repeat", run.repeat},
               {"seed", run.seed},
               {"duration_s", seconds_of(run.duration)},
               {"valid", run.is_valid()},
               {"invalid_because", summary.invalid},
               {"interrupted", summary.interrupted},
               {"requests", summary.requests},
               {"ok", summary.ok},
               {"error", summary.errors},
               {"rejected", summary.rejected},
               {"timeout", summary.timeouts},
               {"unfinished", summary.unfinished},
               {"good", summary.good},
               {"offered_per_s", summary.offered_per_s},
               {"sent_per_s", summary.sent_per_s},
               {"ok_per_s", summary.ok_per_s},
               {"goodput_per_s", summary.goodput_per_s},
               {"good_part", summary.good_part}};
  json.update(tokens_json(summary));
  json["ttft_ms"] = percentiles_json(summary.ttft_ms);
  json["itl_ms"] = percentiles_json(summary.itl_ms);
  json["e2e_ms"] = percentiles_json(summary.e2e_ms);
  json["generator"] = {
      {"lateness_p99_ms", summary.lateness_p99_ms ? Json(*summary.lateness_p99_ms) : not_available("none was sent")},
      {"lateness_ms", percentiles_json(summary.lateness_ms)},
      {"without_connection", summary.without_connection},
      {"reader_busy", summary.reader_busy},
      {"realtime_sender", summary.realtime_sender}};
  json["reasons"] = Json::array();
  for (const auto& [reason, count] : summary.reasons) json["reasons"].push_back({{"reason", reason}, {"count", count}});
  json["server"] = run.server;
  json["master"] = run.master;
  json["processes"] = run.processes;
  json["network"] = run.network;
  return json;
}

// What is compared over runs; nothing: a run doesn't have it.
struct Figure {
  const char* name;
  std::optional<double> (*of)(const RunSummary&);
};

template <evidence::Percentiles RunSummary::*kOf, std::size_t kAt>
std::optional<double> percentile(const RunSummary& summary) {
  const auto& at = (summary.*kOf).at[kAt];
  return at ? std::optional(at->value) : std::nullopt;
}

constexpr Figure kFigures[] = {
    {"offered_per_s", [](const RunSummary& run) { return std::optional(run.offered_per_s); }},
    {"ok_per_s", [](const RunSummary& run) { return std::optional(run.ok_per_s); }},
    {"goodput_per_s", [](const RunSummary& run) { return std::optional(run.goodput_per_s); }},
    {"good_part", [](const RunSummary& run) { return std::optional(run.good_part); }},
    {"output_tokens_per_s", [](const RunSummary& run) { return std::optional(run.output_tokens_per_s); }},
    {"ttft_ms_p50", percentile<&RunSummary::ttft_ms, 0>},
    {"ttft_ms_p95", percentile<&RunSummary::ttft_ms, 1>},
    {"ttft_ms_p99", percentile<&RunSummary::ttft_ms, 2>},
    {"itl_ms_p50", percentile<&RunSummary::itl_ms, 0>},
    {"itl_ms_p95", percentile<&RunSummary::itl_ms, 1>},
    {"itl_ms_p99", percentile<&RunSummary::itl_ms, 2>},
    {"e2e_ms_p50", percentile<&RunSummary::e2e_ms, 0>},
    {"e2e_ms_p95", percentile<&RunSummary::e2e_ms, 1>},
    {"e2e_ms_p99", percentile<&RunSummary::e2e_ms, 2>},
};

Json rates_json(const SloResult& result) {
  std::map<std::optional<double>, std::vector<const SloRun*>> by_rate;
  for (const SloRun& run : result.runs) by_rate[run.rate].push_back(&run);
  Json rates = Json::array();
  for (const auto& [rate, runs] : by_rate) {
    Json json = {{"rate_per_s", rate ? Json(*rate) : Json(nullptr)}, {"runs", runs.size()}};
    const auto valid = std::count_if(runs.begin(), runs.end(), [](const SloRun* run) { return run->is_valid(); });
    json["valid_runs"] = valid;
    for (const Figure& figure : kFigures) {
      std::vector<double> values;
      for (const SloRun* run : runs)
        if (run->is_valid())
          if (const auto value = figure.of(run->summary)) values.push_back(*value);
      // A median of the runs that happened to have enough samples would be one of a choice.
      if (values.empty() || values.size() < static_cast<std::size_t>(valid)) {
        json[figure.name] = not_available(fmt::format("{} of {} valid runs have it", values.size(), valid));
        continue;
      }
      const Spread spread = spread_of(values);
      json[figure.name] = {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
    }
    rates.push_back(std::move(json));
  }
  return rates;
}

Json knee_json(const SloOptions& options, const SloResult& result) {
  if (!result.knee) return not_available("one rate was measured; --rates or --find-knee measure several");
  const std::optional<double> knee = result.knee->knee(), fails = result.knee->fails_at();
  return {{"good_part_min", options.knee_part},
          {"rate_per_s",
           knee ? Json(*knee)
                : not_available(fails ? "the lowest rate measured fails already" : "no rate has a valid run")},
          {"fails_at_per_s", fails ? Json(*fails) : not_available("no rate that was measured fails")}};
}

Json record_json(const SloRun& run, std::size_t number, Nanos warmup, const LoadRecord& record) {
  const auto count = [](const std::optional<std::uint64_t>& value) { return value ? Json(*value) : Json(nullptr); };
  const bool has_tokens = !record.token_times.empty();
  Json json = {{"run", number},
               {"rate_per_s", run.rate ? Json(*run.rate) : Json(nullptr)},
               {"repeat", run.repeat},
               {"index", record.index},
               {"warmup", record.planned < warmup},
               {"planned_s", seconds_of(record.planned)},
               {"sent_s", record.sent ? Json(seconds_of(*record.sent)) : Json(nullptr)},
               {"lateness_ms", record.sent ? Json(to_ms(record.lateness())) : Json(nullptr)},
               {"no_connection", record.no_connection},
               {"outcome", load_outcome_name(record.outcome)},
               {"status", record.status},
               {"reason", record.reason},
               {"ttft_ms", has_tokens ? Json(record.ttft_ms()) : Json(nullptr)},
               {"e2e_ms", record.e2e_ms()},
               {"prompt_tokens", count(record.usage.prompt_tokens)},
               {"cached_tokens", count(record.usage.cached_tokens)},
               {"output_tokens", count(record.usage.output_tokens)},
               {"finish_reason", record.finish_reason},
               {"itl_ms", Json::array()}};
  for (std::size_t i = 1; i < record.token_times.size(); ++i)
    json["itl_ms"].push_back(to_ms(record.token_times[i] - record.token_times[i - 1]));
  return json;
}

}  // namespace

Json percentiles_json(const evidence::Percentiles& percentiles) {
  Json json = {{"samples", percentiles.samples}};
  if (percentiles.samples > 0)
    json.update({{"mean", percentiles.mean}, {"min", percentiles.min}, {"max", percentiles.max}});
  for (std::size_t i = 0; i < evidence::kReportedPermille.size(); ++i) {
    const std::string name = fmt::format("p{}", evidence::kReportedPermille[i] / 10);
    if (const auto& at = percentiles.at[i]) {
      json[name] = {{"ms", at->value}, {"low_ms", at->low}, {"high_ms", at->high}};
    } else {
      json[name] = not_available(fmt::format(
          "needs {} samples, has {}", evidence::samples_needed(evidence::kReportedPermille[i]), percentiles.samples));
    }
  }
  return json;
}

Json slo_json(const SloOptions& options, const SloLabels& labels, const SloResult& result) {
  Json json = {{"schema", "nano-mooncake/slo/v1"},
               {"valid", result.all_valid() && !result.interrupted},
               {"interrupted", result.interrupted},
               {"provenance", origin_json(options, labels)},
               {"host", host_json()},
               {"server", server_json(options, labels)},
               {"load", load_json(options)},
               {"note", labels.note},
               {"knee", knee_json(options, result)},
               {"rates", rates_json(result)},
               {"runs", Json::array()}};
  for (const SloRun& run : result.runs) json["runs"].push_back(run_json(run));
  json["unmeasured"] = unmeasured_json();
  return json;
}

std::string request_lines(const SloOptions& options, const SloResult& result) {
  std::string lines;
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    for (const LoadRecord& record : result.runs[i].records)
      lines += dump_json(record_json(result.runs[i], i, options.warmup, record)) + "\n";
  }
  return lines;
}

std::string knee_sentence(const SloOptions& options, const SloResult& result) {
  if (!result.knee) return "";
  const std::optional<double> knee = result.knee->knee(), fails = result.knee->fails_at();
  if (!knee && !fails) return "No knee: no rate has a valid run.";
  if (!knee)
    return fmt::format("No knee: even at {:.4g} requests/s less than {:g} % are good.", *fails,
                       options.knee_part * 100);
  if (!fails) return fmt::format("No knee up to {:.4g} requests/s, the highest rate measured.", *knee);
  return fmt::format(
      "Knee: {:.4g} requests/s, the highest rate at which at least {:g} % are good; at {:.4g} fewer are.", *knee,
      options.knee_part * 100, *fails);
}

}  // namespace nmc::lab
