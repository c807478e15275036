#include "cli/program.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/failpoint.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/exit_code.h"
#include "cli/help.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "net/http.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kProgram = "nano-mooncake";
constexpr std::string_view kLinkPrefix = "nano-mooncake-";

// One line, whatever the message holds.
int fail(std::string_view who, const Error& error) {
  std::string message = error.message;
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "{}: {}\n", who, message);
  return exit_code_of(error.code);
}

Result<int> print(const std::string& text) {
  NMC_RETURN_IF_ERROR(write_standard_output(text));
  return kExitDone;
}

void apply_log_level(const Settings& settings) {
  // Some commands take the names in capitals, and "CRITICAL", which nothing of ours is.
  const auto is = [&](std::string_view name) { return net::equals_ignoring_case(settings.text("log-level"), name); };
  set_log_level(is("debug")     ? LogLevel::kDebug
                : is("info")    ? LogLevel::kInfo
                : is("warning") ? LogLevel::kWarning
                : is("error")   ? LogLevel::kError
                                : LogLevel::kOff);
}

Result<int> run_command(const Command& command, std::span<const std::string> arguments) {
  NMC_ASSIGN_OR_RETURN(const CommandLine line, parse_command_line(command, arguments));
  if (line.help) return print(command_help(command));
  if (line.version) return print(version_line());
  const Environment environment = process_environment();
  std::optional<Path> file;
  if (!line.config.empty()) file = line.config;
  NMC_ASSIGN_OR_RETURN(const Settings settings,
                       resolve_settings(command.settings, line.flags, environment, file, line.operands));
  apply_log_level(settings);
  for (const std::string& unknown : unknown_variables(command.settings, environment)) log_warning("{}", unknown);
  for (const std::string& idle : settings_without_effect(settings)) log_warning("{}", idle);
  return command.run(settings);
}

std::vector<std::string> command_names(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

// The command that the program does when it is called by that name; "" for its own.
std::string command_of_link(const std::vector<Command>& commands, const std::string& called) {
  if (called.starts_with(kLinkPrefix)) return called.substr(kLinkPrefix.size());
  const auto linked = std::find_if(commands.begin(), commands.end(),
                                   [&](const Command& c) { return !c.link.empty() && c.link == called; });
  return linked == commands.end() ? "" : linked->name;
}

int run_named(const std::vector<Command>& commands, const std::string& name, std::span<const std::string> arguments) {
  const auto command = std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.name == name; });
  if (command == commands.end()) {
    const std::string advice = did_you_mean(name, command_names(commands));
    return fail(kProgram, Error{ErrorCode::kInvalidArgument,
                                fmt::format("{}: unknown command{}", name,
                                            advice.empty() ? "; --help lists the commands" : advice)});
  }
  const Result<int> done = run_command(*command, arguments);
  return done ? *done : fail(fmt::format("{} {}", kProgram, name), done.error());
}

// Without a command: the flags that the program itself has.
int run_bare(const std::vector<Command>& commands, std::span<const std::string> arguments) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", program_help(commands));
    return kExitWrongInput;
  }
  const std::string& first = arguments.front();
  Result<int> done = invalid_argument("{}: unknown flag, expected a command; --help lists them", first);
  if (first == "--version")
    done = print(version_line());
  else if (first == "--help" || first == "-h")
    done = print(program_help(commands));
  return done ? *done : fail(kProgram, done.error());
}

}  // namespace

std::vector<Command> all_commands() {
  return {
      demo_command(),
      api_command(),
      top_command(),
      config_command(),
      bench_engine_command(),
      likelihood_command(),
      store_bench_command(),
      slo_command(),
      simulate_command(),
      capacity_command(),
      route_sim_command(),
      plot_command(),
      experiments_command(),
      results_command(),
      decision_gap_command(),
      rebuild_results_command(),
      local_hf_benchmark_command(),
      pressure_budget_command(),
      fault_budget_command(),
      acceptance_report_command(),
      acceptance_diagnostics_command(),
      acceptance_run_command(),
      export_bundle_command(),
      verify_bundle_command(),
      evidence_summary_command(),
      pressure_diagnosis_command(),
      pressure_incident_command(),
      pressure_margin_command(),
      master_command(),
      http_metadata_server_command(),
      worker_command(),
      keeper_command(),
      experiment_case_command(),
  };
}

int run_program(std::span<const std::string> arguments) {
  exit_on_signals();
  if (const Result<void> armed = arm_failpoints_from_environment(); !armed) return fail(kProgram, armed.error());
  const std::vector<Command> commands = all_commands();
  const std::string called = arguments.empty() ? std::string(kProgram) : Path(arguments[0]).filename().string();
  std::span<const std::string> rest = arguments.empty() ? arguments : arguments.subspan(1);
  if (const std::string name = command_of_link(commands, called); !name.empty()) return run_named(commands, name, rest);
  if (rest.empty() || rest.front().starts_with('-')) return run_bare(commands, rest);
  if (rest.front() == "help") {
    if (rest.size() == 1) return run_bare(commands, std::vector<std::string>{"--help"});
    return run_named(commands, rest[1], std::vector<std::string>{"--help"});
  }
  return run_named(commands, rest.front(), rest.subspan(1));
}

}  // namespace nmc::cli
