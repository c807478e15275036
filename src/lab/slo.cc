#include "lab/slo.h"

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "lab/kernel_usage.h"
#include "lab/server_reading.h"

namespace nmc::lab {
namespace {

Json not_available(std::string_view why) { return {{"not_available", why}}; }

// What is read before and after a run.
struct Reading {
  Json metrics;
  std::map<std::string, double> master;
  std::vector<ProcessUsage> processes;
  std::map<std::string, InterfaceBytes> network;

  static Result<Reading> take(const SloOptions& options) {
    Reading reading;
    for (const WatchedProcess& process : options.processes) {
      auto usage = read_process_usage(process.pid);
      if (!usage) return Failure(std::move(usage).error().with_context(process.name));
      reading.processes.push_back(*usage);
    }
    reading.metrics = read_metrics(options.endpoint, options.headers);
    if (options.master) {
      NMC_ASSIGN_OR_RETURN(reading.master, read_master(*options.master));
    }
    reading.network = read_network();
    return reading;
  }
};

Json number_or(const std::optional<std::uint64_t>& before, const std::optional<std::uint64_t>& after) {
  if (!before || !after) return not_available("the kernel doesn't tell this user");
  return *after - std::min(*before, *after);
}

Json json_between(const ProcessUsage& before, const ProcessUsage& after, double seconds) {
  const double user = after.user_s - before.user_s, system = after.system_s - before.system_s;
  // Threads that ended took their counts with them.
  const auto switches = [](std::uint64_t a, std::uint64_t b) { return b - std::min(a, b); };
  return {{"cpu_user_s", user},
          {"cpu_system_s", system},
          {"cores_used", seconds > 0 ? (user + system) / seconds : 0},
          {"rss_bytes", after.rss_bytes},
          {"pss_bytes", after.pss_bytes ? Json(*after.pss_bytes) : not_available("the kernel doesn't tell this user")},
          {"read_bytes", number_or(before.read_bytes, after.read_bytes)},
          {"write_bytes", number_or(before.write_bytes, after.write_bytes)},
          {"voluntary_switches", switches(before.voluntary_switches, after.voluntary_switches)},
          {"involuntary_switches", switches(before.involuntary_switches, after.involuntary_switches)}};
}

Json processes_between(const SloOptions& options, const Reading& before, const Result<Reading>& after, double seconds) {
  if (options.processes.empty()) return not_available("no process was named by --pid");
  if (!after) return not_available(after.error().message);
  Json processes = Json::object();
  for (std::size_t i = 0; i < options.processes.size(); ++i)
    processes[options.processes[i].name] = json_between(before.processes[i], after->processes[i], seconds);
  return processes;
}

Json network_between(const Reading& before, const Result<Reading>& after) {
  if (!after) return not_available(after.error().message);
  Json network = Json::object();
  for (const auto& [name, bytes] : after->network) {
    const auto old = before.network.find(name);
    if (old == before.network.end() || bytes.received < old->second.received || bytes.sent < old->second.sent) continue;
    const std::uint64_t received = bytes.received - old->second.received, sent = bytes.sent - old->second.sent;
    if (received + sent > 0) network[name] = {{"received_bytes", received}, {"sent_bytes", sent}};
  }
  return network;
}

Json master_between(const SloOptions& options, const Reading& before, const Result<Reading>& after) {
  if (!options.master) return not_available("no master was named by --master-url");
  if (!after) return not_available(after.error().message);
  Json counters = Json::object();
  for (const auto& [name, value] : after->master) {
    const auto old = before.master.find(name);
    const double grown = old == before.master.end() ? value : value - old->second;
    if (grown != 0) counters[name] = grown;
  }
  return counters;
}

// The first run has the seed itself, so that it can be had again alone.
std::uint64_t seed_of(const SloOptions& options, std::size_t rate_number, std::size_t repeat) {
  if (rate_number == 0 && repeat == 0) return options.seed;
  return keyed_random(options.seed, rate_number, repeat) >> 11;  // exact in JSON
}

class Bench {
 public:
  explicit Bench(const SloOptions& options) : options_(options) {}

  Result<SloResult> run() {
    if (options_.find_knee) {
      NMC_RETURN_IF_ERROR(search());
    } else if (options_.rates.empty()) {
      NMC_RETURN_IF_ERROR(measure(std::nullopt, 0));
    } else {
      for (std::size_t i = 0; i < options_.rates.size() && !result_.interrupted; ++i)
        NMC_RETURN_IF_ERROR(measure(options_.rates[i], i));
    }
    if (!options_.find_knee && options_.rates.size() > 1) judge_rates();
    return std::move(result_);
  }

 private:
  Result<void> search() {
    result_.knee.emplace(options_.knee_part);
    std::size_t number = 0;
    while (const auto rate = result_.knee->next(options_.rates.front(), options_.knee_rates_max)) {
      NMC_RETURN_IF_ERROR(measure(*rate, number++));
      if (result_.interrupted) break;
      const std::optional<double> part = good_part_of(*rate);
      if (!part) break;  // the generator is at its own end: what lies above can't be told
      result_.knee->add(*rate, *part);
    }
    return {};
  }

  void judge_rates() {
    result_.knee.emplace(options_.knee_part);
    for (const double rate : options_.rates)
      if (const auto part = good_part_of(rate)) result_.knee->add(rate, *part);
  }

  // Median over its valid runs; nothing: it has none.
  std::optional<double> good_part_of(double rate) const {
    std::vector<double> parts;
    for (const SloRun& run : result_.runs)
      if (run.rate == rate && run.is_valid()) parts.push_back(run.summary.good_part);
    if (parts.empty()) return std::nullopt;
    std::sort(parts.begin(), parts.end());
    return (parts[(parts.size() - 1) / 2] + parts[parts.size() / 2]) / 2;
  }

  Result<void> measure(std::optional<double> rate, std::size_t rate_number) {
    for (std::size_t repeat = 0; repeat < options_.repeats && !result_.interrupted; ++repeat) {
      if (options_.on_run) {
        options_.on_run(rate ? fmt::format("{:g} requests/s, run {} of {}", *rate, repeat + 1, options_.repeats)
                             : fmt::format("run {} of {}", repeat + 1, options_.repeats));
      }
      auto run = measure_once(rate, repeat, seed_of(options_, rate_number, repeat));
      if (!run && run.error().code == ErrorCode::kCancelled) {
        result_.interrupted = true;
        return {};
      }
      if (!run) return Failure(std::move(run).error());
      result_.interrupted = run->summary.interrupted;
      result_.runs.push_back(*std::move(run));
    }
    return {};
  }

  std::vector<Nanos> arrivals_of(std::optional<double> rate, std::uint64_t seed, Nanos end) const {
    std::vector<Nanos> arrivals;
    if (options_.arrivals == Arrivals::kTrace) {
      arrivals = options_.prompts.trace->arrivals();
      std::erase_if(arrivals, [end](Nanos at) { return at >= end; });
      arrivals.resize(std::min(arrivals.size(), options_.requests_max));
    } else if (options_.arrivals != Arrivals::kClosed) {
      arrivals = plan_arrivals({.arrivals = options_.arrivals,
                                .per_second = *rate,
                                .duration = end,
                                .requests_max = options_.requests_max,
                                .burst_size = options_.burst_size,
                                .seed = seed});
    }
    return arrivals;
  }

  Nanos measured_time() const {
    if (options_.duration) return *options_.duration;
    const Nanos end = options_.prompts.trace->requests.back().at + Nanos(1);
    return std::max(Nanos(1), end - options_.warmup);
  }

  // Of a plan that --max-requests cut short: nothing is offered after its end.
  Nanos cut_duration(const std::vector<Nanos>& arrivals, std::optional<double> rate) const {
    const Nanos gap = rate ? Nanos(static_cast<std::int64_t>(1e9 / *rate)) : Nanos(1);
    return std::clamp(arrivals.back() + gap - options_.warmup, Nanos(1), measured_time());
  }

  Result<SloRun> measure_once(std::optional<double> rate, std::size_t repeat, std::uint64_t seed) {
    Nanos duration = measured_time();
    PromptOptions prompt_options = options_.prompts;
    prompt_options.seed = seed;
    const LoadPrompts prompts(std::move(prompt_options));
    const LoadTarget target{
        .endpoint = options_.endpoint,
        .path = options_.body.chat ? "/v1/chat/completions" : "/v1/completions",
        .headers = options_.headers,
        .streamed = options_.body.streamed,
        .body = [&](std::size_t index) { return format_body(prompts.prompt(index), options_.body); }};
    LoopOptions loop{.arrivals = arrivals_of(rate, seed, options_.warmup + duration),
                     .concurrency = options_.concurrency,
                     .duration = options_.warmup + duration,
                     .requests_max = options_.requests_max,
                     .timeout = options_.timeout,
                     .should_stop = options_.should_stop,
                     .on_progress = options_.on_progress};
    if (loop.arrivals.empty() && loop.concurrency == 0)
      return invalid_argument("no request would be sent: expected a higher rate or a longer run");
    if (loop.arrivals.size() == options_.requests_max) duration = cut_duration(loop.arrivals, rate);
    NMC_ASSIGN_OR_RETURN(const Reading before, Reading::take(options_));
    NMC_ASSIGN_OR_RETURN(LoopRun done, run_loop(target, loop));
    const Result<Reading> after = Reading::take(options_);
    SloRun run{.rate = rate, .repeat = repeat, .seed = seed, .duration = duration};
    run.summary = summarize(done, {.warmup = options_.warmup,
                                   .duration = duration,
                                   .max_lateness_ms = options_.max_lateness_ms,
                                   .limits = options_.limits});
    run.server = metrics_between(before.metrics, after ? after->metrics : Json(nullptr));
    run.master = master_between(options_, before, after);
    run.processes = processes_between(options_, before, after, done.seconds);
    run.network = network_between(before, after);
    if (options_.keep_records) run.records = std::move(done.records);
    return run;
  }

  const SloOptions& options_;
  SloResult result_;
};

}  // namespace

bool SloResult::all_valid() const {
  return std::all_of(runs.begin(), runs.end(), [](const SloRun& run) { return run.summary.invalid.empty(); });
}

Result<SloResult> measure_slo(const SloOptions& options) { return Bench(options).run(); }

}  // namespace nmc::lab
