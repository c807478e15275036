#include "cli/experiment_suite.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/failpoint.h"
#include "cli/case_process.h"
#include "cli/serving_settings.h"
#include "cli/terminal.h"
#include "evidence/registry.h"
#include "lab/experiment_faults.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{64} << 20;

Result<std::vector<lab::WorkloadSpec>> workloads_of(const SuiteOptions& options) {
  if (options.workloads.empty()) return lab::parse_workloads(lab::built_in_workloads(), "the built-in workloads");
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(options.workloads));
  return lab::parse_workloads(text, options.workloads);
}

std::string failpoint_of(const lab::FaultSpec& fault, const std::string& transfer) {
  return std::string(transfer == "direct" && !fault.failpoint_direct.empty() ? fault.failpoint_direct
                                                                             : fault.failpoint);
}

// "prefill-0:handover.span=exit@1" in its parts.
struct Injection {
  std::string process, name;
};
Injection injection_of(const std::string& failpoint) {
  const std::size_t colon = failpoint.find(':'), equals = failpoint.find('=');
  return {failpoint.substr(0, colon), failpoint.substr(colon + 1, equals - colon - 1)};
}

// How often it acted in that process, by the lines that the process wrote: "process pid name count".
std::uint64_t fired(const Path& log, const Injection& injection) {
  const Result<std::string> text = read_file(log);
  std::istringstream lines(text ? *text : "");
  std::uint64_t most = 0;
  std::string process, name;
  for (std::uint64_t pid = 0, count = 0; lines >> process >> pid >> name >> count;) {
    if (process == injection.process && name == injection.name) most = std::max(most, count);
  }
  return most;
}

// One case: its command line, its process, its row.
class SuiteCase {
 public:
  SuiteCase(const SuiteOptions& options, const lab::PlannedCase& planned, const lab::WorkloadSpec& workload,
            const Path& folder)
      : options_(options),
        key_(planned.key),
        repeat_(planned.repeat),
        workload_(workload),
        folder_(folder),
        fault_(lab::find_fault(planned.key.fault)) {
    if (fault_ != nullptr) failpoint_ = failpoint_of(*fault_, key_.transfer);
  }

  struct Outcome {
    evidence::CaseRow row;
    std::optional<evidence::ModelIdentity> model;
    bool interrupted = false;
  };

  Result<Outcome> run(const StopSignal& stop) {
    if (!failpoint_.empty() && !kHasFailpoints) return Outcome{.row = without_result("skipped", kNoFailpoints)};
    CaseProcessOptions process{
        .arguments = arguments(),
        .environment = {"NANO_MOONCAKE_FAILPOINTS=" + failpoint_,
                        "NANO_MOONCAKE_FAILPOINTS_LOG=" + failpoint_log().string(), "NANO_MOONCAKE_PROCESS=front"},
        .log = folder_ / "log",
        .deadline = options_.case_timeout};
    NMC_ASSIGN_OR_RETURN(const CaseProcessEnd end, run_case_process(process, stop));
    Outcome outcome{.row = without_result("failed", end.last_words), .interrupted = end.interrupted};
    if (end.interrupted) return outcome;
    if (end.timed_out)
      outcome.row.reason = fmt::format("it took longer than {} s", options_.case_timeout / std::chrono::seconds(1));
    if (end.exit_code == 0) NMC_RETURN_IF_ERROR(read_answer(outcome));
    add_evidence(outcome.row, end);
    return outcome;
  }

 private:
  static constexpr const char* kNoFailpoints = "this build has no failpoints";

  Path failpoint_log() const { return folder_ / "failpoints"; }
  Path answer() const { return folder_ / "answer.json"; }

  evidence::CaseRow without_result(std::string status, std::string reason) const {
    return {.key = key_,
            .repeat = repeat_,
            .status = std::move(status),
            .reason = reason.empty() ? "it ended without a word" : std::move(reason),
            .workload_digest = std::string(evidence::kUnknown),
            .requests = {},
            .workers = {},
            .resources = {},
            .fault = fault_ == nullptr ? std::nullopt : std::optional(evidence())};
  }

  evidence::FaultEvidence evidence() const {
    const std::size_t colon = failpoint_.find(':');
    return {.failpoint = failpoint_.empty() ? "" : failpoint_.substr(colon + 1),
            .process = failpoint_.empty() ? "" : failpoint_.substr(0, colon),
            .fired = 0,
            .expected = std::string(fault_->expected),
            .observed = false};
  }

  std::vector<std::string> arguments() const {
    std::vector<std::string> words = {"experiment-case"};
    const auto flag = [&](std::string_view name, auto value) { words.push_back(fmt::format("--{}={}", name, value)); };
    flag("parent", ::getpid());
    flag("output", answer().string());
    flag("workload", key_.workload);
    if (!options_.workloads.empty()) flag("workloads", options_.workloads);
    flag("experiment-mode", key_.mode);
    flag("experiment-transfer", key_.transfer);
    flag("ratio", key_.ratio);
    flag("lifecycle", key_.lifecycle);
    flag("fault", key_.fault);
    flag("repeat", repeat_);
    flag("seed", options_.seed);
    flag("max-new-tokens", options_.max_new_tokens.value_or(0));
    flag("model", options_.model);
    flag("dtype", options_.dtype);
    flag("threads", options_.threads);
    flag("dram-bytes", options_.dram_bytes);
    flag("log-level", "warning");
    flag("reuse", key_.mode == "pd-global" ? "global" : "none");
    if (key_.mode == "monolithic") {
      flag("mode", "monolithic");
    } else {
      const lab::Ratio ratio = *lab::parse_ratio(key_.ratio);
      flag("mode", "pd-process");
      flag("transfer", key_.transfer);
      flag("prefill", ratio.prefill);
      flag("decode", ratio.decode);
    }
    if (key_.lifecycle == "dram-evict") flag("disk-dir", (folder_ / "disk").string());
    if (workload_.max_queue > 0) {
      flag("max-queue", workload_.max_queue);
      flag("max-running", 1);
    }
    if (fault_ != nullptr) flag("worker-timeout-s", fault_->worker_timeout_s);
    return words;
  }

  Result<void> read_answer(Outcome& outcome) const {
    NMC_ASSIGN_OR_RETURN(const std::string text, read_file(answer(), kAnswerBytesMax));
    NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, "a case's answer"));
    NMC_ASSIGN_OR_RETURN(outcome.row, evidence::parse_case(json["case"], "a case's answer"));
    const Json& model = json["model"];
    outcome.model = evidence::ModelIdentity{
        .name = model["name"], .digest = model["digest"], .dtype = model["dtype"], .parameters = model["parameters"]};
    return {};
  }

  // What can be known only from outside, once all its processes are gone.
  void add_evidence(evidence::CaseRow& row, const CaseProcessEnd& end) const {
    row.resources["orphan_processes"] = end.orphan_processes;
    row.resources["orphan_shm"] = end.orphan_shm;
    if (fault_ == nullptr) return;
    row.fault = evidence();
    if (!failpoint_.empty()) {
      row.fault->fired = fired(failpoint_log(), injection_of(failpoint_));
      row.fault->observed = row.fault->fired > 0;
    }
    if (fault_->cancels)
      row.fault->observed = std::ranges::count(row.requests, "cancelled", &evidence::RequestRow::outcome) > 0;
    if (fault_->quarantines) row.resources["quarantined_expected"] = row.fault->fired;
    if (fault_->expected == "gone" && row.fault->observed && !end.timed_out) {
      row.status = "done";  // as it should be: there is nobody to answer
      row.reason = "";
    }
  }

  const SuiteOptions& options_;
  const evidence::CaseKey& key_;
  const std::uint64_t repeat_;
  const lab::WorkloadSpec& workload_;
  const Path folder_;
  const lab::FaultSpec* const fault_;
  std::string failpoint_;
};

Json config_json(const SuiteOptions& options) {
  return {{"seed", options.seed},
          {"repeats", options.plan.repeats},
          {"max_new_tokens", options.max_new_tokens ? Json(*options.max_new_tokens) : Json(nullptr)},
          {"model", options.model},
          {"dtype", options.dtype},
          {"threads", options.threads},
          {"dram_bytes", options.dram_bytes},
          {"workloads", options.workloads.empty() ? Json(nullptr) : Json(options.workloads)}};
}

std::string as_key(std::string_view name) { return std::string(name); }

Setting words_setting(std::string name, std::string placeholder, std::string help,
                      std::span<const std::string_view> choices = {}) {
  Setting setting{.name = std::move(name),
                  .kind = Kind::kWords,
                  .placeholder = std::move(placeholder),
                  .default_text = "",
                  .help = std::move(help),
                  .source = Source::kFlagOnly};
  std::ranges::transform(choices, std::back_inserter(setting.choices), as_key);
  return setting;
}

}  // namespace

std::vector<Setting> suite_settings() {
  std::vector<Setting> settings = {
      {.name = "suite",
       .kind = Kind::kChoice,
       .placeholder = "smoke|default|full",
       .default_text = "default",
       .help = "Which cases there are, unless the flags below choose them.",
       .choices = {"smoke", "default", "full"},
       .source = Source::kFlagOnly},
      words_setting("workload", "NAME", "Workloads. May be given several times, as all lists of cases."),
      words_setting("mode", "MODE", "Monolithic; prefill and decode apart without, or with, the global cache.",
                    lab::kModes),
      words_setting("ratio", "PpDd", "Prefill and decode workers: 2p1d."),
      words_setting("transfer", "shm|tcp|direct", "How KV is handed over.", lab::kTransfers),
      words_setting(
          "lifecycle", "cold|warm|dram-evict",
          "What the measured requests find: an empty cache, what they left in memory before, or what memory had "
          "to give up to disk.",
          lab::kLifecycles),
      words_setting("fault", "NAME", "Faults to inject; each brings the case without it along."),
      {.name = "repeats",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "3",
       .help = "Times that each case is run, each time on a system started anew.",
       .low = 1,
       .high = 1000,
       .source = Source::kFlagOnly},
      {.name = "seed",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "Of the prompts. The same seed gives the same token ids, workload digests and cache counters.",
       .low = 0,
       .high = std::int64_t{1} << 53,
       .source = Source::kFlagOnly},
      {.name = "max-new-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "",
       .help = "Cuts answers to N tokens. Default: as long as each workload says.",
       .low = 1,
       .high = 1'000'000,
       .source = Source::kFlagOnly},
      {.name = "workloads",
       .placeholder = "FILE",
       .default_text = "",
       .help = "Definitions of workloads. Default: those of docs/workload_bundles.json, which are built in.",
       .source = Source::kFlagOnly},
      {.name = "case-timeout-s",
       .kind = Kind::kInteger,
       .placeholder = "S",
       .default_text = "120",
       .help = "Seconds after which a case is given up, and reported as failed.",
       .low = 1,
       .high = 86'400,
       .source = Source::kFlagOnly},
  };
  static constexpr std::string_view kServingFlags[] = {"model", "dtype", "threads", "dram-bytes", "log-level"};
  std::vector<Setting> serving = serving_settings_for(kServingFlags);
  set_default(serving, "dram-bytes", "64MiB");
  for (Setting& setting : serving) {
    // The others are each case's own, and some have the names of lists of cases.
    if (std::ranges::count(kServingFlags, setting.name) > 0) settings.push_back(std::move(setting));
  }
  return settings;
}

Result<SuiteOptions> suite_options_of(const Settings& settings) {
  SuiteOptions options;
  options.plan = {.suite = settings.text("suite"),
                  .workloads = settings.words("workload"),
                  .modes = settings.words("mode"),
                  .ratios = settings.words("ratio"),
                  .transfers = settings.words("transfer"),
                  .lifecycles = settings.words("lifecycle"),
                  .faults = settings.words("fault"),
                  .repeats = settings.count("repeats")};
  options.seed = settings.count("seed");
  if (settings.has("max-new-tokens")) options.max_new_tokens = settings.count("max-new-tokens");
  options.model = settings.text("model");
  options.dtype = settings.text("dtype");
  options.threads = settings.count("threads");
  options.dram_bytes = settings.bytes("dram-bytes");
  options.workloads = settings.text_or("workloads", "");
  options.case_timeout = std::chrono::seconds(settings.integer("case-timeout-s"));
  return options;
}

void show_progress(SuiteOptions& options, const Settings& settings) {
  if (settings.on("quiet") || !is_terminal(STDERR_FILENO)) return;
  options.on_case = [watch = Stopwatch()](std::size_t done, std::size_t cases, const lab::PlannedCase& next) {
    const double seconds = watch.elapsed_ms() / 1000;
    const std::string left =
        done == 0
            ? ""
            : fmt::format(", {:.0f} s left", seconds / static_cast<double>(done) * static_cast<double>(cases - done));
    fmt::print(stderr, "\r{} of {} cases{}: {}\033[K{}", done, cases, left, next.key.name(), done == cases ? "\n" : "");
  };
}

Result<SuiteResult> run_suite(const SuiteOptions& options, const StopSignal& stop) {
  NMC_ASSIGN_OR_RETURN(const std::vector<lab::WorkloadSpec> workloads, workloads_of(options));
  NMC_ASSIGN_OR_RETURN(const std::vector<lab::PlannedCase> planned, lab::plan_cases(options.plan, workloads));
  SuiteResult result;
  evidence::ExperimentReport& report = result.report;
  report.run_id = evidence::new_run_id();
  report.started_at = evidence::utc_now();
  report.suite = options.plan.is_custom() ? "custom" : options.plan.suite;
  report.config = config_json(options);
  report.provenance = {
      .evidence_tier = std::string(lab::tier_of_model(options.model)),
      .build = lab::build_identity(),
      .machine = lab::machine_identity(),
      .model = {.name = options.model, .digest = std::string(evidence::kUnknown), .dtype = options.dtype}};
  for (const lab::PlannedCase& one : planned) {
    if (options.on_case) options.on_case(report.cases.size(), planned.size(), one);
    const auto workload = std::ranges::find(workloads, one.key.workload, &lab::WorkloadSpec::name);
    NMC_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create("nmc-case"));
    NMC_ASSIGN_OR_RETURN(SuiteCase::Outcome outcome, SuiteCase(options, one, *workload, folder.path()).run(stop));
    result.interrupted = outcome.interrupted;
    if (result.interrupted) break;
    if (outcome.model) report.provenance.model = *outcome.model;
    report.cases.push_back(std::move(outcome.row));
  }
  if (options.on_case && !planned.empty()) options.on_case(report.cases.size(), report.cases.size(), planned.back());
  report.ended_at = evidence::utc_now();
  return result;
}

Result<evidence::ExperimentReport> file_report(const evidence::ExperimentReport& report, const Path& output,
                                               const Path& index) {
  const Json json = evidence::report_json(report);
  NMC_RETURN_IF_ERROR(write_file_atomic(output, dump_json_pretty(json) + "\n"));
  NMC_ASSIGN_OR_RETURN(evidence::ExperimentReport filed, evidence::parse_report(json, output.string()));
  NMC_RETURN_IF_ERROR(evidence::append_record(index, evidence::record_of(filed, evidence::path_from(index, output))));
  return filed;
}

}  // namespace nmc::cli
