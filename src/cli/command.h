// A command is data (its words and its settings) and one function that does the work. Parsing, help, configuration,
// error lines and exit codes are the same for all (program.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/setting.h"
#include "cli/settings.h"

namespace nmc::cli {

struct Command {
  std::string name;       // "demo"; also run as nano-mooncake-demo
  std::string link = {};  // a further name it is run under: "mooncake_http_metadata_server"; "": none
  bool internal = false;  // started by other commands only: not listed
  bool gflags = false;    // takes -flag, and --noflag for a switch, as programs built on gflags do
  std::string summary;    // one line for the list of commands
  // Words that are no flags, at least one, as help calls them: "REPORT..."; "": none are taken.
  std::string operands = {};
  std::string purpose;  // what --help says first; paragraphs separated by an empty line
  std::vector<Setting> settings;
  std::vector<int> exit_codes;  // those it can end with
  std::string example;          // one command line

  // Does the work; the exit code, or the error that becomes one line and a code (exit_code.h).
  Result<int> (*run)(const Settings& settings) = nullptr;
};

Command demo_command();
Command api_command();
Command config_command();
Command bench_engine_command();
Command likelihood_command();
Command store_bench_command();
Command simulate_command();
Command capacity_command();
Command route_sim_command();
Command slo_command();
Command plot_command();
Command experiments_command();
Command experiment_case_command();
Command results_command();
Command decision_gap_command();
Command rebuild_results_command();
Command local_hf_benchmark_command();
Command pressure_budget_command();
Command fault_budget_command();
Command acceptance_report_command();
Command acceptance_diagnostics_command();
Command acceptance_run_command();
Command export_bundle_command();
Command verify_bundle_command();
Command evidence_summary_command();
Command pressure_diagnosis_command();
Command pressure_incident_command();
Command pressure_margin_command();
Command http_metadata_server_command();
Command master_command();
Command worker_command();
Command keeper_command();
Command top_command();

// In the order of the list that `nano-mooncake --help` prints.
std::vector<Command> all_commands();

}  // namespace nmc::cli
