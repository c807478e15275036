// `nano-mooncake slo`: an open-loop load generator against any OpenAI server.
#include "lab/slo.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "cli/slo_settings.h"
#include "cli/terminal.h"
#include "lab/server_reading.h"
#include "lab/slo_report.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"api-key", "log-level"};
constexpr Nanos kProgressEvery = std::chrono::milliseconds(500);

// Three figures that count; "-" for a percentile that has too few samples.
Cell short_number(double value) { return Cell(value, value < 10 ? 2 : value < 100 ? 1 : 0); }
Cell percentile_cell(const evidence::Percentiles& percentiles, std::size_t at) {
  if (!percentiles.at[at]) return "-";
  return short_number(percentiles.at[at]->value);
}

std::vector<Cell> row_of(const lab::SloRun& run) {
  const lab::RunSummary& summary = run.summary;
  std::vector<Cell> row = {
      run.rate ? Cell(fmt::format("{:.4g}", *run.rate)) : Cell("-"),
      Cell(run.repeat + 1),
      summary.interrupted ? "interrupted"
      : run.is_valid()    ? "yes"
                          : "no",
      Cell(summary.requests),
      Cell(summary.ok),
      Cell(summary.errors),
      Cell(summary.rejected),
      Cell(summary.timeouts),
      Cell(summary.offered_per_s, 2),
      Cell(summary.ok_per_s, 2),
      Cell(summary.goodput_per_s, 2),
      summary.counted_by_server && summary.ok > 0 ? Cell(summary.output_tokens_per_s, 0) : Cell("-")};
  for (const auto* percentiles : {&summary.ttft_ms, &summary.itl_ms, &summary.e2e_ms})
    for (std::size_t at = 0; at < evidence::kReportedPermille.size(); ++at)
      row.push_back(percentile_cell(*percentiles, at));
  row.push_back(summary.lateness_p99_ms ? Cell(*summary.lateness_p99_ms, 2) : Cell("-"));
  return row;
}

Table table_of(const lab::SloResult& result) {
  Table table;
  table.columns = {"rate_per_s",
                   "run",
                   "valid",
                   "requests",
                   "ok",
                   "error",
                   "rejected",
                   "timeout",
                   "offered_per_s",
                   "ok_per_s",
                   "goodput_per_s",
                   "output_tokens_per_s",
                   "ttft_ms_p50",
                   "ttft_ms_p95",
                   "ttft_ms_p99",
                   "itl_ms_p50",
                   "itl_ms_p95",
                   "itl_ms_p99",
                   "e2e_ms_p50",
                   "e2e_ms_p95",
                   "e2e_ms_p99",
                   "lateness_ms_p99"};
  for (const lab::SloRun& run : result.runs) table.rows.push_back(row_of(run));
  return table;
}

std::string outcome_lines(const lab::SloResult& result) {
  std::string text;
  for (const lab::SloRun& run : result.runs) {
    const std::string which = run.rate ? fmt::format("{:.4g} requests/s, run {}", *run.rate, run.repeat + 1)
                                       : fmt::format("run {}", run.repeat + 1);
    for (const std::string& reason : run.summary.invalid) text += fmt::format("Invalid: {}: {}.\n", which, reason);
    for (const auto& [reason, count] : run.summary.reasons)
      text += fmt::format("{}: {} x {}\n", which, count, printable(reason));
  }
  return text;
}

std::string text_of(const lab::SloOptions& options, const lab::SloResult& result, const Table& table) {
  std::string text = fmt::format("{}, model {}; {} arrivals, {} prompts; times count from when a request was due.\n\n",
                                 options.endpoint.to_string(), printable(options.body.model),
                                 lab::arrivals_name(options.arrivals), lab::workload_name(options.prompts.workload));
  // One run reads better downwards.
  text += format_table(result.runs.size() == 1 ? transposed(table) : table);
  const bool withholds = std::any_of(result.runs.begin(), result.runs.end(), [](const lab::SloRun& run) {
    return !run.summary.ttft_ms.at.back() || !run.summary.e2e_ms.at.back();
  });
  if (withholds) {
    text += fmt::format("\n-: too few samples: p50 needs {}, p95 {}, p99 {}.\n", evidence::samples_needed(500),
                        evidence::samples_needed(950), evidence::samples_needed(990));
  }
  const std::string more = outcome_lines(result), knee = lab::knee_sentence(options, result);
  if (!more.empty()) text += "\n" + more;
  if (!knee.empty()) text += "\n" + knee + "\n";
  return text;
}

void show_progress(lab::SloOptions& options) {
  struct Run {
    Nanos begin{0}, shown{0};
  };
  const auto current = std::make_shared<Run>();
  options.on_run = [current](std::string_view what) {
    fmt::print(stderr, "nano-mooncake slo: {}\n", what);
    *current = {.begin = real_clock().now(), .shown = Nanos(0)};
  };
  if (!is_terminal(2)) return;
  const Nanos whole = options.duration ? options.warmup + *options.duration : options.prompts.trace->requests.back().at;
  options.on_progress = [current, whole](std::size_t sent, std::size_t ended) {
    const Nanos now = real_clock().now();
    if (now - current->shown < kProgressEvery) return;
    current->shown = now;
    const Nanos gone = now - current->begin;
    const std::string left =
        gone < whole ? fmt::format("{:.0f} s left", to_ms(whole - gone) / 1e3) : "waiting for answers";
    fmt::print(stderr, "{} sent, {:.1f}/s, {} under way, {}\033[K\r", sent,
               static_cast<double>(sent) / (to_ms(gone) / 1e3), sent - std::min(sent, ended), left);
  };
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(lab::SloOptions options, slo_options_of(settings));
  lab::SloLabels labels = slo_labels_of(settings, options);
  if (options.body.model.empty()) {
    NMC_ASSIGN_OR_RETURN(options.body.model, lab::first_model(options.endpoint, options.headers));
  }
  labels.server_version = lab::server_version(options.endpoint, options.headers);
  labels.server_provenance = lab::server_provenance(options.endpoint, options.headers);
  if (!settings.on("quiet")) show_progress(options);
  NMC_ASSIGN_OR_RETURN(const StopSignal stop, StopSignal::create());
  options.should_stop = [&stop] { return stop.has_come(); };
  NMC_ASSIGN_OR_RETURN(const lab::SloResult result, lab::measure_slo(options));
  if (result.runs.empty()) return kExitInterrupted;
  Report report;
  report.json = lab::slo_json(options, labels, result);
  report.table = table_of(result);
  report.text = text_of(options, result, report.table);
  if (settings.has("requests"))
    NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("requests"), lab::request_lines(options, result)));
  NMC_RETURN_IF_ERROR(write_report(report, settings));
  if (result.interrupted) return kExitInterrupted;
  return result.all_valid() ? kExitDone : kExitJudgedFailed;
}

}  // namespace

Command slo_command() {
  Command command{
      .name = "slo",
      .summary = "load on any OpenAI server, sent on time: latencies, goodput, the knee",
      .purpose =
          "Sends requests to an OpenAI server at planned times, whether or not earlier ones were answered, and reports "
          "time to the first token (TTFT), gaps between tokens (ITL) and whole times (E2E) at p50, p95 and p99, each "
          "with its number of samples and, in JSON, a 95 % interval; what was ok, failed, rejected (429, 503) and "
          "timed "
          "out; and goodput, the rate of answers within --slo-ttft-ms, --slo-itl-ms and --slo-e2e-ms.\n\n"
          "Times count from when a request was due. A run whose requests were sent late (--max-lateness-ms at p99), or "
          "whose answers may have been read late, is invalid: the figures are written with the reason, and the exit "
          "code is 1. A percentile with fewer than five samples above it is withheld.\n\n"
          "With several --rates, or --find-knee, the knee is the highest rate at which at least --knee-part of the "
          "requests offered were good and below which no rate failed.",
      .settings = slo_settings(),
      .exit_codes = {kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake slo --url http://127.0.0.1:8000 --rates 1,2,4,8 --slo-ttft-ms 500 --repeats 3",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) {
    const bool is_ours = std::any_of(command.settings.begin(), command.settings.end(),
                                     [&](const Setting& own) { return own.name == setting.name; });
    if (!is_ours) command.settings.push_back(std::move(setting));
  }
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
